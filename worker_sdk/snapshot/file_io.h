// Reads and replaces whole files. Every error message contains the file's name and the system's error text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/status.h"

namespace ddprun {

// Invoked with the number of bytes read or written since the previous call. Written bytes are reported before
// they are on the disk.
using ByteProgress = std::function<void(int64_t bytes)>;

// Returns the status for errno `error` on `path`. `what` describes the failed action, such as "cannot open".
// The code is kResourceExhausted if the disk is full or if a quota or a file size limit is reached. All
// other codes are those of ErrnoToStatusCode, such as kNotFound and kPermissionDenied.
Status FileError(std::string_view what, std::string_view path, int error);

// Returns the file's bytes. Allocates only slightly more than the file's size.
StatusOr<std::string> ReadFile(const std::string& path, const ByteProgress& progress = nullptr);

// Writes `parts`, concatenated, to `directory`/`temporary`, syncs it, and renames it to `directory`/`name`.
// After OK, the file survives a power failure. After an error, there is no temporary file, and `name` is
// unchanged. Exception: if only the final sync of the directory has failed, `name` may be the new file.
//   last_check: called right before the rename. If last_check fails, the file is not renamed, and the error
//               of last_check is returned.
Status ReplaceFile(const std::string& directory, const std::string& name, const std::string& temporary,
                   std::span<const std::string_view> parts,
                   const std::function<Status()>& last_check = OkStatus,
                   const ByteProgress& progress = nullptr);

// Writes a file without syncing it. The file may be lost in a power failure, and may be incomplete if the
// process is killed.
Status WriteFile(const std::string& path, std::string_view bytes);

// Returns the sorted names of the entries in `directory`, except "." and "..".
StatusOr<std::vector<std::string>> ListDirectory(const std::string& directory);

// Creates `directory` and its missing parents, and verifies that it is writable by writing a file.
Status MakeWritableDirectory(const std::string& directory);

}  // namespace ddprun
