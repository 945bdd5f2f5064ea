// Reads a file that may be a pipe, with a deadline.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

// Returns the content of a file or pipe, at most `max_bytes` of it (/dev/zero never ends). Blocks for at most
// `limit`.
//   Errors: kDeadlineExceeded: a pipe has no data, or has not ended, within `limit`; errors of open and read:
//           kNotFound, kPermissionDenied, ... Messages do not contain the path.
absl::StatusOr<std::string> ReadWithin(const std::string& path, size_t max_bytes, Duration limit);

}  // namespace ddprun
