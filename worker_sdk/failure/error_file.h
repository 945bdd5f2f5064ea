// What a failing worker leaves for the launcher's failure report: its last line on standard error, and the
// file named by TORCHELASTIC_ERROR_FILE.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ddprun/status.h"

namespace ddprun {

// Returns true if `error` originated in this worker. kUnavailable, kAborted and kDeadlineExceeded originate
// in a peer or a store. A worker with one of these errors must not be shown as the root cause, even if it is
// the first to report an error.
bool IsOwnFailure(const Status& error);

// Suffix of the error message of a worker that fails because of a peer or a store. Launchers recognize such
// failures by this suffix, regardless of the rest of the message. The suffix must not change between
// versions.
constexpr std::string_view kCauseIsElsewhere = "(the cause is elsewhere)";

// Returns the text that a worker prints to standard error when it exits with `error`: the message, followed
// by kCauseIsElsewhere if the error did not originate in this worker.
std::string LastWords(const Status& error);

// Returns the JSON that PyTorch's workers write:
//   {"message": {"message": "...", "extraInfo": {"py_callstack": "...", "timestamp": "1795248899"}}}
// `time_s`: seconds since the epoch; the failure report shows the earliest error as the root cause.
std::string ErrorFileJson(const Status& error, int64_t time_s);

// Writes ErrorFileJson with the current time to `path`. Writes nothing if `path` is empty or if `error` did
// not originate in this worker. Best effort: file errors are ignored, because `error` has already been
// reported.
void LeaveErrorFile(const std::string& path, const Status& error);

}  // namespace ddprun
