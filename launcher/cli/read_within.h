// Reading a file that may be a pipe.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

// All of a file or pipe, or its first `max_bytes`, as /dev/zero never ends. Blocks, at most for `limit`.
//   Errors: without the path; kDeadlineExceeded: a pipe that nobody writes to, or not to its end; those of
//           open and read: kNotFound, kPermissionDenied, ...
absl::StatusOr<std::string> ReadWithin(const std::string& path, size_t max_bytes, Duration limit);

}  // namespace ddprun
