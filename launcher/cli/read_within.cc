#include "launcher/cli/read_within.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

absl::Status Failed() { return absl::Status(absl::ErrnoToStatusCode(errno), std::strerror(errno)); }

}  // namespace

absl::StatusOr<std::string> ReadWithin(const std::string& path, size_t max_bytes, Duration limit) {
  const TimePoint deadline = std::chrono::steady_clock::now() + limit;
  // O_NONBLOCK: opening a FIFO must not block until it has a writer.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return Failed();
  struct stat info;
  if (fstat(file.get(), &info) != 0) return Failed();
  const bool is_pipe = S_ISFIFO(info.st_mode);
  std::string text;
  for (;;) {
    if (text.size() == max_bytes) return text;
    const Duration left = std::max(deadline - std::chrono::steady_clock::now(), Duration::zero());
    pollfd waits{.fd = file.get(), .events = POLLIN, .revents = 0};
    const int ready = poll(&waits, 1, static_cast<int>(std::min<int64_t>(ToMillis(left), INT_MAX)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return Failed();
    // A pipe that always has data makes poll succeed even when no time is left.
    if (ready == 0 || (is_pipe && left == Duration::zero() && !text.empty())) {
      return absl::DeadlineExceededError(
          absl::StrCat(text.empty() ? "no data from the pipe" : "no end of the pipe's data", " within ",
                       limit / seconds(1), " s"));
    }
    char piece[4096];
    const ssize_t n = read(file.get(), piece, std::min(sizeof piece, max_bytes - text.size()));
    if (n < 0 && errno != EINTR && errno != EAGAIN) return Failed();
    if (n > 0) text.append(piece, static_cast<size_t>(n));
    if (n == 0) return text;
  }
}

}  // namespace ddprun
