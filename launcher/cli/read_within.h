// Reads a file that may be a pipe, with a deadline.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

// Returns the content of a file or pipe, at most `max_bytes` of it (/dev/zero never ends). Blocks for at most
// `limit`.
//   Errors: without the path. kDeadlineExceeded: a pipe has no data, or no end, within `limit`; those of open
//           and read: kNotFound, kPermissionDenied, ...
absl::StatusOr<std::string> ReadWithin(const std::string& path, size_t max_bytes, Duration limit);

}  // namespace ddprun
