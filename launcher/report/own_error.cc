#include "launcher/report/own_error.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/exit_info.h"
#include "launcher/report/error_file.h"

namespace ddprun {
namespace {

constexpr size_t kShownBytes = 2 << 10;

// Returns the name of torchrun's exception for this reason. Schedulers match these names.
absl::string_view ExceptionOf(EndReason reason) {
  switch (reason) {
    case EndReason::kJoinTimeout:
      return "RendezvousTimeoutError";
    case EndReason::kStopped:
      return "RendezvousClosedError";
    case EndReason::kCoordinatorLost:
    case EndReason::kCoordinatorEnded:
    case EndReason::kEvicted:
      return "RendezvousConnectionError";
    case EndReason::kJobFailed:
      return "ChildFailedError";
    case EndReason::kInterrupted:
    case EndReason::kTerminated:
      return "SignalException";
    case EndReason::kRejected:
      return "ValueError";
    case EndReason::kSucceeded:
    case EndReason::kDrained:
    case EndReason::kPreempted:
    case EndReason::kBroken:
      break;
  }
  return "RuntimeError";
}

}  // namespace

void OwnErrorFile::LeaveCause(const FailureRecord& cause) const {
  if (path_.empty() || !cause.worker_error) return;
  WarnIfExists();
  const absl::Status written = WriteErrorFile(path_, *cause.worker_error, TorchExitCode(cause.failure.exit));
  if (!written.ok()) say_(std::string(written.message()));
}

void OwnErrorFile::LeaveReason(EndReason reason, absl::string_view why, int64_t unix_seconds) const {
  Leave(absl::StrCat(ExceptionOf(reason), ": ", why), unix_seconds);
}

void OwnErrorFile::LeaveSignal(int signo, int64_t unix_seconds) const {
  Leave(absl::StrCat("SignalException: Process ", getpid(), " got signal: ", signo), unix_seconds);
}

void OwnErrorFile::Leave(const std::string& text, int64_t unix_seconds) const {
  if (path_.empty()) return;
  WarnIfExists();
  const absl::Status written = WriteErrorFile(path_, text, unix_seconds);
  if (!written.ok()) say_(std::string(written.message()));
}

void OwnErrorFile::WarnIfExists() const {
  const std::string old = HeadOfFile(path_, kShownBytes);
  if (old.empty()) return;
  say_(absl::StrCat(path_, " already exists and will be overwritten. Original contents:\n", old));
}

}  // namespace ddprun
