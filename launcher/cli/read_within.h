// Reads a file that may be a pipe, with a deadline.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

// Returns the content of a file or pipe, but at most `max_bytes`, because some files have no end, such as
// /dev/zero. For a pipe, waits at most `limit` in total for the data and the end of file.
//   Errors: kDeadlineExceeded: the end of a pipe was not reached within `limit`. Errors from open() and
//           read(), such as kNotFound and kPermissionDenied, are also returned. Messages do not contain the
//           path.
absl::StatusOr<std::string> ReadWithin(const std::string& path, size_t max_bytes, Duration limit);

}  // namespace ddprun
