// What a failing worker leaves for the launcher's failure report: its last line on standard error, and the
// file named by TORCHELASTIC_ERROR_FILE.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// True if `error` originated in this worker. kUnavailable, kAborted and kDeadlineExceeded originate in a peer
// or a store; a worker with such an error must not be taken for the root cause, even if it reports first.
bool IsOwnFailure(const absl::Status& error);

// Suffix of the error message of a worker that fails because of a peer or a store. Launchers recognize such
// failures by this suffix, whatever the rest of the message. It must not change between versions.
constexpr absl::string_view kCauseIsElsewhere = "(the cause is elsewhere)";

// What a worker prints to standard error when it exits with `error`: the message, followed by
// kCauseIsElsewhere if the failure is not its own.
std::string LastWords(const absl::Status& error);

// Returns the JSON that PyTorch's workers write:
//   {"message": {"message": "...", "extraInfo": {"py_callstack": "...", "timestamp": "1795248899"}}}
// `time_s`: seconds since the epoch; the failure report shows the earliest error as the root cause.
std::string ErrorFileJson(const absl::Status& error, int64_t time_s);

// Writes ErrorFileJson with the current time to `path`. Writes nothing if `path` is empty or the failure is
// not this worker's own. Best effort: file errors are ignored, because `error` has already been reported.
void LeaveErrorFile(const std::string& path, const absl::Status& error);

}  // namespace ddprun
