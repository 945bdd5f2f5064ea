// Where files go that have no place of their own.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace ddprun {

// The first of $TMPDIR, $TEMP, $TMP, /tmp, /var/tmp, /usr/tmp and the working directory in which a file can
// be written, as an absolute path. The same order and test as Python's tempfile.gettempdir().
//   Errors: kFailedPrecondition: there is none, with the directories that were tried.
absl::StatusOr<std::string> TemporaryDirectory();

}  // namespace ddprun
