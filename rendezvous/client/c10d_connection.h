// A connection to a c10d TCP store. Uses the versioned dialect; see docs/protocol.md, "c10d TCP".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "proto/c10d_wire.h"

namespace ddprun {

// Sends requests and reads the replies in order.
//   Errors:  kInvalidArgument: the request is invalid; nothing was sent;
//            kUnavailable: the connection is unusable, and all later calls fail. A late or invalid reply also
//            makes the connection unusable, because later replies could not be matched to their requests.
//   Threads: one caller at a time.
class C10dConnection {
 public:
  // Connects like C10dClient::Connect. `timeout` also limits each later Tell and Ask.
  static absl::StatusOr<std::unique_ptr<C10dConnection>> Open(const std::string& host, int port,
                                                              Duration timeout);
  ~C10dConnection();
  C10dConnection(const C10dConnection&) = delete;
  C10dConnection& operator=(const C10dConnection&) = delete;

  // Sends a request that has no reply.
  absl::Status Tell(const c10d::Request& request);

  // Sends a request and reads its reply with `receive(deadline)`, which returns a StatusOr.
  template <typename Receive>
  auto Ask(const c10d::Request& request, Receive receive) -> decltype(receive(TimePoint())) {
    const TimePoint deadline = Deadline();
    if (absl::Status sent = Send(request, deadline); !sent.ok()) return sent;
    auto reply = receive(deadline);
    if (!reply.ok()) return Break(reply.status(), c10d::Info(c10d::OpOf(request)).name);
    return reply;
  }

  // Sends a WAIT or BARRIER request and waits for its reply.
  //   Errors: kDeadlineExceeded: `timeout` has passed and the wait was cancelled. The message names
  //           `awaited`. The connection stays usable.
  absl::Status Await(const c10d::Request& request, const std::string& awaited, Duration timeout);

  // The Receive functions are for `receive` of Ask. Each of them reads one part of a reply.
  //   Errors: kUnavailable, kDeadlineExceeded. Ask converts both to kUnavailable.
  absl::StatusOr<uint8_t> ReceiveU8(TimePoint deadline);
  absl::StatusOr<int64_t> ReceiveI64(TimePoint deadline);
  absl::StatusOr<std::string> ReceiveBytes(TimePoint deadline);
  absl::StatusOr<std::vector<std::string>> ReceiveList(uint64_t num_items, TimePoint deadline);

  // See C10dClient::local_address.
  std::string local_address() const;

 private:
  C10dConnection(std::string endpoint, Duration timeout)
      : endpoint_(std::move(endpoint)), timeout_(timeout) {}

  TimePoint Deadline() const;
  absl::Status Send(const c10d::Request& request, TimePoint deadline);
  absl::Status SendOut(TimePoint deadline);
  absl::Status Receive(char* data, size_t size, TimePoint deadline);
  absl::Status Greet(TimePoint deadline);
  absl::Status Break(const absl::Status& why, absl::string_view doing);

  const std::string endpoint_;  // for error messages
  const Duration timeout_;
  int fd_ = -1;
  absl::Status broken_;  // why the connection is unusable; OK while it is usable
  std::string out_;      // buffer for an encoded request
};

}  // namespace ddprun
