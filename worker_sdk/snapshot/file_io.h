// Whole files, read and replaced. Every error names the file and says what the system said.
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

// Told of bytes that have been read or written since it was last told; of those written, some time before
// they are on the disk.
using ByteProgress = std::function<void(int64_t bytes)>;

// `what` happened to `path` with errno `error`.
//   kResourceExhausted: no space, quota or permitted file size is left; kNotFound; kPermissionDenied; others
//   as absl::ErrnoToStatus.
absl::Status FileError(absl::string_view what, absl::string_view path, int error);

// Holds the file's size and little more.
absl::StatusOr<std::string> ReadFile(const std::string& path, const ByteProgress& progress = nullptr);

// Writes `parts`, one after the other, to `directory`/`temporary`, and when every byte is on the disk renames
// it to `directory`/`name`. After OK the file survives a power cut. After an error there is no temporary
// file, and what `name` was before it still is; only the error of the last fsync, that of the directory, may
// leave the new file there.
//   `last_check`: asked right before the rename; its error is that of the whole.
absl::Status ReplaceFile(const std::string& directory, const std::string& name, const std::string& temporary,
                         absl::Span<const absl::string_view> parts,
                         const std::function<absl::Status()>& last_check = absl::OkStatus,
                         const ByteProgress& progress = nullptr);

// Writes a file that nobody needs after a power cut: no sync, and torn when the process is killed.
absl::Status WriteFile(const std::string& path, absl::string_view bytes);

// Names in `directory`, without "." and "..", sorted.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& directory);

// Makes `directory` with those above it where they are missing, and proves by a file that it can be written
// to.
absl::Status MakeWritableDirectory(const std::string& directory);

}  // namespace ddprun
