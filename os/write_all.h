// Writes all bytes to a blocking file descriptor.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "absl/strings/string_view.h"

namespace ddprun {

// Returns 0, or an errno value; after an error a prefix of `bytes` may have been written.
inline int WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace ddprun
