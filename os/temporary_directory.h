// The directory for temporary files.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace ddprun {

// The first of $TMPDIR, $TEMP, $TMP, /tmp, /var/tmp, /usr/tmp and the working directory in which a file can
// be written, as an absolute path. Same order and test as Python's tempfile.gettempdir().
//   Errors: kFailedPrecondition: none is usable; the message lists the directories tried.
absl::StatusOr<std::string> TemporaryDirectory();

}  // namespace ddprun
