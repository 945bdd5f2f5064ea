// What a failing worker leaves for the launcher's failure report: its last line on standard error, and the
// file named by TORCHELASTIC_ERROR_FILE.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// True if `error` originated in this worker. kUnavailable, kAborted and kDeadlineExceeded originate in a peer
// or a store: a worker that reports one of them first must not be taken for the first cause.
bool IsOwnFailure(const absl::Status& error);

// Suffix of the message of a worker that fails because of others. Launchers recognize consequences by it,
// whatever the message. It is the same in all versions.
constexpr absl::string_view kCauseIsElsewhere = "(the cause is elsewhere)";

// What a worker prints to standard error when it exits with `error`: the message, followed by
// kCauseIsElsewhere if the failure is not its own.
std::string LastWords(const absl::Status& error);

// {"message": {"message": "...", "extraInfo": {"py_callstack": "...", "timestamp": "1795248899"}}}: the
// format that PyTorch's workers write. `time_s`: seconds since the epoch; the report takes the earliest for
// the cause.
std::string ErrorFileJson(const absl::Status& error, int64_t time_s);

// Writes ErrorFileJson with the current time to `path`. Writes nothing if `path` is empty or the failure is
// not this worker's own. Best effort: errors of the file are ignored, because `error` is already reported.
void LeaveErrorFile(const std::string& path, const absl::Status& error);

}  // namespace ddprun
