// Helpers for files: removal by descriptor, safe opening of files of unknown type, and the directory for
// temporary files.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "os/descriptor.h"

namespace ddprun {

// Unlinks the file that is open as `fd`. If the file has been renamed since it was opened, its current name
// is unlinked. `fd` may be an O_PATH descriptor. Has no effect if the file has no name, or if its former
// name now belongs to another file.
void RemoveFileOf(int fd);

struct PlainFile {
  UniqueFd fd;       // open for reading
  int64_t size = 0;  // in bytes, at the time of opening
};

// Opens the file at `path` for reading. Returns nullopt if the file cannot be opened or is not a regular
// file. Does not open devices, and does not block on a FIFO, even if a FIFO replaces the file between stat()
// and open().
inline std::optional<PlainFile> OpenPlainFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return PlainFile{.fd = std::move(fd), .size = info.st_size};
}

// Returns the first of $TMPDIR, $TEMP, $TMP, /tmp, /var/tmp, /usr/tmp and the working directory in which a
// file can be written, as an absolute path. The order and the test are those of Python's
// tempfile.gettempdir().
//   Errors: kFailedPrecondition: no directory is usable; the message lists the directories tried.
absl::StatusOr<std::string> TemporaryDirectory();

}  // namespace ddprun
