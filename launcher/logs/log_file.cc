#include "launcher/logs/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
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
  // If one line fills the whole file, the line is split.
  std::string line(line_begin_ == 0 ? 0 : static_cast<size_t>(writer_.size() - line_begin_), '\0');
  const auto fail = [&](const char* what) {
    writer_.Fail(
        absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path_, "; further output is lost")));
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

namespace {

// Approximate memory overhead of a job.
constexpr size_t kJobBytes = 512;

struct Result {
  QueuedLog::Range range;
  int64_t room = 0;
  absl::Status problem;
};

void WriteNow(LogFile& file, absl::string_view bytes, Result& result) {
  const bool plain = file.room() >= static_cast<int64_t>(bytes.size());
  const int64_t begin = file.size();
  const auto kept = static_cast<int64_t>(file.Write(bytes));
  if (plain) result.range = {.begin = begin, .size = kept, .rotations = file.rotations()};
  result.room = file.room();
  result.problem = file.TakeProblem();
}

std::string ReadNow(const LogFile& file, const QueuedLog::Range& range) {
  std::string bytes;
  if (range.rotations != file.rotations()) return bytes;
  bytes.resize(static_cast<size_t>(range.size));
  const ssize_t n = file.Read(range.begin, bytes.data(), bytes.size());
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return bytes;
}

}  // namespace

QueuedLog::QueuedLog(DiskThread* disk, std::unique_ptr<LogFile> file,
                     std::function<void(const absl::Status&)> warn)
    : disk_(*disk), warn_(std::move(warn)), file_(std::move(file)), room_(file_->room()) {}

// The file is closed in the DiskThread, because close() may block.
QueuedLog::~QueuedLog() {
  alive_.End();
  disk_.Do([file = std::move(file_)]() mutable { file.reset(); });
}

void QueuedLog::Write(std::shared_ptr<Chunk> chunk, std::function<void(const Range&)> written) {
  const auto size = static_cast<int64_t>(chunk->size);
  in_flight_ += size;
  const auto result = std::make_shared<Result>();
  disk_.Do([file = file_, chunk, result] { WriteNow(*file, chunk->view(), *result); },
           alive_.Guard([this, chunk, result, written = std::move(written), size] {
             in_flight_ -= size;
             room_ = result->room;
             if (!result->problem.ok()) warn_(result->problem);
             if (written) written(result->range);
             // Use no members from here on, because `written` may have destroyed this object.
             if (chunk.use_count() == 1) Recycle(std::move(*chunk));
           }),
           chunk->capacity + kJobBytes);
}

void QueuedLog::Read(const Range& range, std::function<void(const std::string&)> read) {
  const auto bytes = std::make_shared<std::string>();
  disk_.Do([file = file_, range, bytes] { *bytes = ReadNow(*file, range); },
           alive_.Guard([bytes, read = std::move(read)] { read(*bytes); }));
}

void FilteredLog::WriteMatching(absl::string_view lines, size_t prefix_size) {
  std::string matching;
  while (!lines.empty()) {
    const absl::string_view line = lines.substr(0, lines.find('\n', prefix_size) + 1);
    lines.remove_prefix(line.size());
    const auto in_line = [text = line.substr(prefix_size)](const std::string& filter) {
      return absl::StrContains(text, filter);
    };
    if (std::any_of(filters_.begin(), filters_.end(), in_line)) {
      matching.append(line.data(), line.size());
    }
  }
  if (!matching.empty()) file_->Write(std::make_shared<Chunk>(Chunk::CopyOf(matching)));
}

void FilteredStream::Feed(absl::string_view bytes) {
  prefixer_.Feed(bytes, lines_);
  Pass();
}

void FilteredStream::Finish() {
  prefixer_.Finish(lines_);
  Pass();
}

void FilteredStream::Pass() {
  log_->WriteMatching(lines_, prefixer_.prefix_size());
  lines_.clear();
}

}  // namespace ddprun
