// Opening what a worker has left, which may be anything.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "os/unique_fd.h"

namespace ddprun {

struct PlainFile {
  UniqueFd fd;       // to read from
  int64_t size = 0;  // in bytes, when it was opened
};

// None when it cannot be read, or is no plain file: a device is not touched, and no open waits for the other
// end of a FIFO, also when it becomes one meanwhile.
inline std::optional<PlainFile> OpenPlainFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return PlainFile{.fd = std::move(fd), .size = info.st_size};
}

}  // namespace ddprun
