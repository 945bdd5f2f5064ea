// A file system that fails between the rename of a file and the sync of its directory.
#pragma once

#include <functional>

namespace ddprun {

// Runs `body` in another thread, in which every open() of a directory with O_DIRECTORY fails with EIO.
// Returns when `body` has returned.
void WithDirectoryErrors(const std::function<void()>& body);

}  // namespace ddprun
