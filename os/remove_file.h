// Removes a file by descriptor, so that a different file of the same name is kept.
#pragma once

namespace ddprun {

// Removes the current name of the file behind `fd` (O_PATH suffices): the name under which it was opened, or
// the one it was renamed to. No effect if the file has no name, or if another file now has that name.
void RemoveFileOf(int fd);

}  // namespace ddprun
