// Reads and replaces whole files. Every error message contains the file's name and the system's message.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun {

// Invoked with the number of bytes read or written since the previous call. Written bytes are reported before
// they are on the disk.
using ByteProgress = std::function<void(int64_t bytes)>;

// Returns the status for errno `error` on `path`. `what`: the failed action, such as "cannot open".
// kResourceExhausted if the disk is full or a quota or file size limit is reached. Other codes are those of
// absl::ErrnoToStatusCode, such as kNotFound and kPermissionDenied.
absl::Status FileError(absl::string_view what, absl::string_view path, int error);

// Returns the file's bytes. Allocates only slightly more than the file's size.
absl::StatusOr<std::string> ReadFile(const std::string& path, const ByteProgress& progress = nullptr);

// Writes `parts`, concatenated, to `directory`/`temporary`, syncs it, and renames it to `directory`/`name`.
// After OK the file survives a power failure. After an error there is no temporary file and `name` is
// unchanged. Exception: if only the final sync of the directory failed, `name` may be the new file.
//   last_check: called right before the rename; if it fails, there is no rename and its error is returned.
absl::Status ReplaceFile(const std::string& directory, const std::string& name, const std::string& temporary,
                         absl::Span<const absl::string_view> parts,
                         const std::function<absl::Status()>& last_check = absl::OkStatus,
                         const ByteProgress& progress = nullptr);

// Writes a file without syncing it. The file may be lost in a power failure, and may be incomplete if the
// process is killed.
absl::Status WriteFile(const std::string& path, absl::string_view bytes);

// Returns the sorted names of the entries in `directory`, except "." and "..".
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& directory);

// Creates `directory` and its missing parents, and verifies that it is writable by writing a file.
absl::Status MakeWritableDirectory(const std::string& directory);

}  // namespace ddprun
