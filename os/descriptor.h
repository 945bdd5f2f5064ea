// File descriptors: ownership, complete writes, and closing a range of them.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/string_view.h"

namespace ddprun {

// A file descriptor with a single owner, closed by the destructor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}  // takes ownership; -1: none
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    Reset(other.Release());
    return *this;
  }
  ~UniqueFd() { Reset(); }

  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  [[nodiscard]] int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// Writes all bytes to a blocking descriptor. Returns 0, or an errno value; after an error a prefix of `bytes`
// may have been written.
inline int WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

// Closes all descriptors >= `first`. Uses close_range (Linux 5.9), falls back to /proc/self/fd, and then to
// closing every number below the hard limit on open files (at most 2^20). Does not allocate memory, so it may
// be called between fork and exec.
void CloseFrom(int first);

}  // namespace ddprun
