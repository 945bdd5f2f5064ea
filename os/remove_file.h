// Removes a file by a descriptor, so that nobody else's of the same name goes.
#pragma once

namespace ddprun {

// Removes the name under which `fd` (O_PATH is enough) was opened, or the one it was given since, if the file
// there is still this one. Nothing happens when it has no name any more.
void RemoveFileOf(int fd);

}  // namespace ddprun
