// Where files go that nobody named a place for.
#pragma once

#include <string>

namespace ddprun {

// The first of $TMPDIR, $TEMP and $TMP in which files can be made, as a whole path; else /tmp. Python's
// order, so that files are where torchrun has them.
std::string TemporaryDirectory();

}  // namespace ddprun
