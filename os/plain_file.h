// Opens a file that a worker wrote. The path may name a file of any type.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "os/descriptor.h"

namespace ddprun {

struct PlainFile {
  UniqueFd fd;       // open for reading
  int64_t size = 0;  // in bytes, at the time of opening
};

// nullopt if the file cannot be read or is not a regular file. Does not open devices and does not block on a
// FIFO, even if the path becomes one between stat() and open().
inline std::optional<PlainFile> OpenPlainFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return PlainFile{.fd = std::move(fd), .size = info.st_size};
}

}  // namespace ddprun
