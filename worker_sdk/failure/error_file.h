// What a failing worker leaves for the launcher's report: its last words, and the file that
// TORCHELASTIC_ERROR_FILE names.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// True when `error` came from this worker itself. kUnavailable, kAborted and kDeadlineExceeded tell of a peer
// or a store: a worker that says so first must not be taken for the cause.
bool IsOwnFailure(const absl::Status& error);

// At the end of the last words of a worker that fails because of others: what a launcher's report can tell
// consequences by, whatever the message. The same in all versions.
constexpr absl::string_view kCauseIsElsewhere = "(the cause is elsewhere)";

// What a worker says on standard error when it ends with `error`: its message, with kCauseIsElsewhere behind
// it when the failure is not its own.
std::string LastWords(const absl::Status& error);

// {"message": {"message": "...", "extraInfo": {"py_callstack": "...", "timestamp": "1795248899"}}}: the shape
// that PyTorch's workers write. `time_s`: seconds since 1970; the report calls the earliest one the cause.
std::string ErrorFileJson(const absl::Status& error, int64_t time_s);

// Writes that to `path`, with the time of now. An empty path, an error that is not this worker's own, and a
// file that cannot be written leave nothing: the error is on its way out already.
void LeaveErrorFile(const std::string& path, const absl::Status& error);

}  // namespace ddprun
