#include "launcher/logs/file_writer.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

bool DiskIsFull(int error) { return error == ENOSPC || error == EDQUOT; }

}  // namespace

size_t FileWriter::Write(absl::string_view bytes) {
  if (failed_ || bytes.empty()) return 0;
  if (missing_ > 0 && !WriteGapLine()) {
    missing_ += static_cast<int64_t>(bytes.size());
    return 0;
  }
  const size_t written = Put(bytes);
  if (written == bytes.size()) return written;
  const int error = errno;
  if (DiskIsFull(error)) {
    missing_ = static_cast<int64_t>(bytes.size() - written);
    Note(absl::ErrnoToStatus(error,
                             absl::StrCat("cannot write to ", name_, "; what does not fit is dropped")));
  } else {
    Fail(absl::ErrnoToStatus(error, absl::StrCat("cannot write to ", name_, "; further output is lost")));
  }
  return written;
}

// Returns the number of bytes written. If it is less than the size of `bytes`, errno has the reason.
size_t FileWriter::Put(absl::string_view bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n = write(fd_.get(), bytes.data() + written, bytes.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  size_ += static_cast<int64_t>(written);
  return written;
}

bool FileWriter::WriteGapLine() {
  const std::string line =
      absl::StrCat("\n[ddprun: ", missing_, " bytes are missing here because the disk was full]\n");
  if (Put(line) != line.size()) return false;
  missing_ = 0;
  return true;
}

void FileWriter::SwitchTo(UniqueFd fd) {
  fd_ = std::move(fd);
  size_ = 0;
}

void FileWriter::Fail(const absl::Status& why) {
  failed_ = true;
  Note(why);
}

void FileWriter::Note(const absl::Status& problem) {
  if (!std::exchange(noted_, true)) problem_ = problem;
}

}  // namespace ddprun
