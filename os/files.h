// Files: removal by descriptor, opening files of unknown type, the directory for temporary files.
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

// Unlinks the file that is open as `fd` (O_PATH suffices) under its current name, even if it was renamed
// after it was opened. No effect if the file has no name, or if another file now has that name.
void RemoveFileOf(int fd);

struct PlainFile {
  UniqueFd fd;       // open for reading
  int64_t size = 0;  // in bytes, at the time of opening
};

// Opens the file at `path` for reading. Returns nullopt if it cannot be read or is not a regular file. Does
// not open devices, and does not block on a FIFO even if the path becomes one between stat() and open().
inline std::optional<PlainFile> OpenPlainFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return PlainFile{.fd = std::move(fd), .size = info.st_size};
}

// Returns the first of $TMPDIR, $TEMP, $TMP, /tmp, /var/tmp, /usr/tmp and the working directory in which a
// file can be written, as an absolute path. Same order and test as Python's tempfile.gettempdir().
//   Errors: kFailedPrecondition: none is usable; the message lists the directories tried.
absl::StatusOr<std::string> TemporaryDirectory();

}  // namespace ddprun
