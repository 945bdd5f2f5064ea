// The register of a job: one small record with compare-and-swap, which outlives the coordinator that writes it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

// What the register holds. `lead` is short and changes with each write; `charter` may have 100 KiB and changes rarely.
struct RegisterRecord {
  // Changes with each write. Versions of one register only increase, also if the record is removed and written again.
  // Without a record: a version that no later record has.
  int64_t version = 0;
  bool exists = false;
  std::string lead = {};     // encoded; see leadership.h
  std::string charter = {};  // encoded; see charter.h
};

// The result of a Swap that was carried out.
struct SwapResult {
  bool swapped = false;
  RegisterRecord current = {};  // the record after the swap, or the one that prevented it
};

// One register of one job.
//   Threads: the thread of its io_context. Callbacks run there, never within a call, once for each call, at the latest
//            shortly after `limit`; none after the register is destroyed.
class CharterRegister {
 public:
  virtual ~CharterRegister() = default;

  // A linearizable read.
  //   Errors: kUnavailable, kDeadlineExceeded: no answer within `limit`;
  //           kPermissionDenied, kUnauthenticated, kInvalidArgument, kFailedPrecondition: does not succeed without a change
  //           of the options or of the service. Each message names the service, the cause and a remedy.
  virtual void Read(Duration limit, std::function<void(absl::StatusOr<RegisterRecord>)> done) = 0;

  // Writes `lead`, and `charter` if it is given, if the record is still the one that was read as `expected`.
  //   expected: only `version` and `exists` count.
  //   Errors: as for Read; kResourceExhausted: the service takes no writes, for example because it is full. After an error
  //           the write may have happened, or may happen later.
  virtual void Swap(const RegisterRecord& expected, std::string lead, std::optional<std::string> charter,
                    Duration limit, std::function<void(absl::StatusOr<SwapResult>)> done) = 0;
};

}  // namespace ddprun
