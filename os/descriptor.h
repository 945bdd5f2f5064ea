// Helpers for file descriptors: an owning wrapper, complete writes, and closing a range of descriptors.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

namespace ddprun {

// A file descriptor with a single owner, closed by the destructor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}  // takes ownership of `fd`, which may be -1
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

// Writes `size` bytes to a blocking descriptor. Returns 0 or an errno value. After an error, a prefix of the
// bytes may have been written.
inline int WriteAll(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, bytes, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes += n;
    size -= static_cast<size_t>(n);
  }
  return 0;
}
// The same for a string of any type.
template <typename Text>
int WriteAll(int fd, const Text& text) {
  return WriteAll(fd, text.data(), text.size());
}

// Closes all descriptors >= `first`. Uses close_range(), which requires Linux 5.9. If close_range() fails,
// closes the descriptors that /proc/self/fd lists. If /proc/self/fd cannot be opened, closes every number
// from `first` up to the hard limit on open files or 2^20, whichever is lower. Does not allocate memory, so
// it may be called between fork and exec.
void CloseFrom(int first);

}  // namespace ddprun
