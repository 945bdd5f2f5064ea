#include "launcher/logs/pipe_peek.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ddprun {
namespace {

// Maximum number of bytes that one Look duplicates.
constexpr size_t kLookBytes = 1 << 20;
// Size of the private pipe, equal to the size that the agent requests for a worker's pipe.
constexpr int kPipeBytes = 256 << 10;

}  // namespace

bool PipePeek::Open() {
  if (reader_) return true;
  int ends[2];
  if (!null_) null_.Reset(open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!null_ || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  reader_.Reset(ends[0]);
  writer_.Reset(ends[1]);
  fcntl(reader_.get(), F_SETPIPE_SZ, kPipeBytes);
  return true;
}

absl::string_view PipePeek::Look(int pipe, size_t& all) {
  all = 0;
  if (!Open()) return "";
  const ssize_t seen = tee(pipe, writer_.get(), kLookBytes, SPLICE_F_NONBLOCK);
  if (seen <= 0) return "";
  all = static_cast<size_t>(seen);
  last_.resize(std::min(all, kMaxBytes));
  size_t skipped = 0, got = 0;
  ssize_t n = 1;
  while (n > 0 && skipped < all - last_.size()) {
    n = splice(reader_.get(), nullptr, null_.get(), nullptr, all - last_.size() - skipped, 0);
    if (n > 0) skipped += static_cast<size_t>(n);
  }
  while (n > 0 && got < last_.size()) {
    n = read(reader_.get(), last_.data() + got, last_.size() - got);
    if (n > 0) got += static_cast<size_t>(n);
  }
  if (n > 0) return last_;
  reader_.Reset();  // Discards the bytes left in the pipe.
  writer_.Reset();
  return "";
}

}  // namespace ddprun
