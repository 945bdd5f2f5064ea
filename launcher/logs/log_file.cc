#include "launcher/logs/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

UniqueFd OpenEmpty(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LogFile>> LogFile::Open(const std::string& path, int64_t max_bytes) {
  UniqueFd fd = OpenEmpty(path);
  if (!fd) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  return std::unique_ptr<LogFile>(new LogFile(path, max_bytes, std::move(fd)));
}

LogFile::LogFile(const std::string& path, int64_t max_bytes, UniqueFd fd)
    : path_(path),
      max_file_bytes_(max_bytes == 0 ? 0 : max_bytes / 2 - FileWriter::kGapLineBytes),
      writer_(std::move(fd), path) {}

size_t LogFile::Write(absl::string_view bytes) {
  size_t passed = 0;
  size_t kept = 0;
  while (passed < bytes.size() && !writer_.failed()) {
    const absl::string_view rest = bytes.substr(passed);
    const size_t fitting = Fitting(rest);
    if (fitting == 0) {
      Rotate();
      continue;
    }
    const size_t n = writer_.Write(rest.substr(0, fitting));
    if (kept == passed) kept += n;
    passed += fitting;
    const size_t newline = rest.substr(0, n).rfind('\n');
    if (newline != absl::string_view::npos) {
      line_begin_ = writer_.size() - static_cast<int64_t>(n - newline - 1);
    }
  }
  return kept;
}

size_t LogFile::Fitting(absl::string_view bytes) const {
  const int64_t room = max_file_bytes_ - writer_.size();
  if (max_file_bytes_ == 0 || static_cast<int64_t>(bytes.size()) <= room) return bytes.size();
  if (room <= 0) return 0;
  const absl::string_view head = bytes.substr(0, static_cast<size_t>(room));
  const size_t newline = head.rfind('\n');
  if (newline != absl::string_view::npos) return newline + 1;
  return line_begin_ == 0 ? head.size() : 0;
}

int64_t LogFile::room() const {
  if (!writer_.complete()) return 0;
  if (max_file_bytes_ == 0) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(max_file_bytes_ - writer_.size(), 0);
}

void LogFile::Rotate() {
  // A line longer than a file is cut.
  std::string line(line_begin_ == 0 ? 0 : static_cast<size_t>(writer_.size() - line_begin_), '\0');
  const auto fail = [&](const char* what) {
    writer_.Fail(absl::ErrnoToStatus(
        errno, absl::StrCat("cannot ", what, " ", path_, "; its output is lost from here")));
  };
  if (!line.empty()) {
    if (Read(line_begin_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return fail("read");
    if (ftruncate(writer_.fd(), line_begin_) != 0) return fail("truncate");
  }
  if (rename(path_.c_str(), absl::StrCat(path_, ".1").c_str()) != 0) return fail("rename");
  UniqueFd fd = OpenEmpty(path_);
  if (!fd) return fail("open");
  writer_.SwitchTo(std::move(fd));
  line_begin_ = 0;
  ++rotations_;
  writer_.Write(line);
}

ssize_t LogFile::Read(int64_t offset, char* buffer, size_t num_bytes) const {
  return pread(writer_.fd(), buffer, num_bytes, offset);
}

}  // namespace ddprun
