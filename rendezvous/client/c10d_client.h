// A client of a c10d TCP store (a worker store, `ddprun --store-only`, or torch's own TCPStore), dialect V.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"

namespace ddprun {

// Blocking. A call takes at most its timeout, one without takes that of Connect; giving up a wait may take a
// store that hangs 5 s more.
//   Keys:    as torch's TCPStore: "/" is put in front of each, so that Python clients of the same store see
//            the same keys.
//   Errors:  kDeadlineExceeded naming the keys waited for, the client stays usable;
//            kUnavailable: the store is gone or did not answer, the client is dead (make a new one).
//   Threads: one caller at a time.
//   Source:  docs/protocol.md, "c10d TCP".
class C10dClient {
 public:
  // Connects, retrying with back-off until `timeout`, and checks that a c10d store answers (VALIDATE and
  // PING, as torch since 2.5).
  //   Errors: kUnavailable: the name did not resolve, nobody listened, or the peer hung up, all the time
  //   long;
  //           kFailedPrecondition: something else than a c10d store answers there.
  static absl::StatusOr<std::unique_ptr<C10dClient>> Connect(std::string host, int port, Duration timeout);
  ~C10dClient();
  C10dClient(const C10dClient&) = delete;
  C10dClient& operator=(const C10dClient&) = delete;

  absl::Status Set(absl::string_view key, absl::string_view value);
  // Waits until `key` is there, then returns its value.
  absl::StatusOr<std::string> Get(absl::string_view key, Duration timeout);
  // Adds to the decimal number at `key` (absent = 0) and returns the sum.
  absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta);
  // Stores `desired` if the value at `key` is `expected` (absent = empty). Returns the value that is there
  // then, or `expected` if `key` is absent and `expected` is not empty.
  absl::StatusOr<std::string> CompareSet(absl::string_view key, absl::string_view expected,
                                         absl::string_view desired);
  absl::StatusOr<bool> Check(const std::vector<std::string>& keys);
  // Waits until all `keys` are there.
  absl::Status Wait(const std::vector<std::string>& keys, Duration timeout);
  // True if `key` was there.
  absl::StatusOr<bool> DeleteKey(absl::string_view key);
  absl::StatusOr<int64_t> NumKeys();

  // Of this host, as the store's host sees it (without a port): where other hosts of the job can reach us.
  std::string local_address() const;

 private:
  struct Impl;
  explicit C10dClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
