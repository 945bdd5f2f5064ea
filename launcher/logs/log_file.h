// The log file of one stream of a worker, with an optional size limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/alive.h"
#include "launcher/logs/chunk.h"
#include "launcher/logs/disk_thread.h"
#include "launcher/logs/file_writer.h"
#include "launcher/logs/lines.h"

namespace ddprun {

// With a limit, there are two files: `path` has the newest bytes, and `path`.1 has the bytes before them.
// When `path` reaches half the limit, it is renamed to `path`.1 and replaces the previous `path`.1. So the
// two files together never exceed `max_bytes`, and after a rotation, they contain about the newest
// `max_bytes` / 2 bytes. Files are split at the ends of lines, unless a line is longer than half the limit.
//   Errors: see FileWriter.
class LogFile {
 public:
  // The smallest permitted limit. It leaves room for a few lines in each of the two files.
  static constexpr int64_t kLeastMaxBytes = 4096;

  // Opens the file and truncates it.
  //   max_bytes: 0 (no limit) or at least kLeastMaxBytes.
  //   Errors:    those of open(2), with the path.
  static absl::StatusOr<std::unique_ptr<LogFile>> Open(const std::string& path, int64_t max_bytes);
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // Writes `bytes`. Returns the size of the longest prefix that was written without a gap.
  size_t Write(absl::string_view bytes);
  // See FileWriter.
  absl::Status TakeProblem() { return writer_.TakeProblem(); }

  // The number of bytes that fit into `path` before it is rotated; 0 while output is being dropped.
  int64_t room() const;
  int rotations() const { return rotations_; }
  // The number of bytes in `path`.
  int64_t size() const { return writer_.size(); }
  // Reads at most `num_bytes` bytes of `path`, starting at `offset`. Returns the same value as pread(2).
  ssize_t Read(int64_t offset, char* buffer, size_t num_bytes) const;

 private:
  LogFile(const std::string& path, int64_t max_bytes, UniqueFd fd);
  // Returns how many of `bytes` fit into the current file; 0 if the file must be rotated first.
  size_t Fitting(absl::string_view bytes) const;
  // Starts a new file and moves the incomplete last line to it. An error makes writer_.failed() true.
  void Rotate();

  const std::string path_;
  const int64_t max_file_bytes_;  // limit for each of the two files; 0 if there is no limit
  FileWriter writer_;
  int64_t line_begin_ = 0;  // offset in `path` at which the incomplete last line begins
  int rotations_ = 0;
};

// A LogFile that is written and read in a DiskThread.
//
//   Order:   writes, reads and their callbacks run in the order of the calls.
//   Errors:  `warn` receives the first error; see FileWriter.
//   Threads: the thread that runs the io_context.
class QueuedLog {
 public:
  // A range of bytes in the file.
  struct Range {
    int64_t begin = 0;
    int64_t size = 0;
    int rotations = 0;  // LogFile::rotations() when the bytes were written
  };
  // `disk` is borrowed and must outlive this object.
  QueuedLog(DiskThread* disk, std::unique_ptr<LogFile> file, std::function<void(const absl::Status&)> warn);
  QueuedLog(const QueuedLog&) = delete;
  QueuedLog& operator=(const QueuedLog&) = delete;
  // Pending writes still run, but their callbacks are not called.
  ~QueuedLog();

  // Accepts the chunk even if DiskThread::full(). `written` receives the range of the chunk in the file. If
  // only the beginning of the chunk, or none of it, can be read back, the range is shorter than the chunk.
  void Write(std::shared_ptr<Chunk> chunk, std::function<void(const Range&)> written = nullptr);
  // True if the next `num_bytes` bytes can be read back after they are written, according to the room in the
  // file after the last finished write.
  bool Keeps(size_t num_bytes) const { return in_flight_ + static_cast<int64_t>(num_bytes) <= room_; }
  // Passes the bytes of `range` to `read`. Omits bytes that are no longer in the file.
  void Read(const Range& range, std::function<void(const std::string&)> read);

 private:
  DiskThread& disk_;
  const std::function<void(const absl::Status&)> warn_;
  std::shared_ptr<LogFile> file_;  // shared with jobs; accessed only in the DiskThread
  int64_t room_;                   // LogFile::room() after the last finished write
  int64_t in_flight_ = 0;          // number of bytes in pending writes
  Alive alive_;
};

// A log file that the tee streams of all workers share. It receives the lines that contain a filter string.
class FilteredLog {
 public:
  // `filters`: a line is written if it contains one of these strings. An empty string matches every line.
  FilteredLog(std::unique_ptr<QueuedLog> file, std::vector<std::string> filters)
      : file_(std::move(file)), filters_(std::move(filters)) {}

  // Writes the matching lines of `lines`, which must be whole lines. The first `prefix_size` bytes of each
  // line are not searched.
  void WriteMatching(absl::string_view lines, size_t prefix_size);

 private:
  const std::unique_ptr<QueuedLog> file_;
  const std::vector<std::string> filters_;
};

// Passes each line of one stream to a FilteredLog as soon as the line is complete, even if the console is
// blocked.
class FilteredStream {
 public:
  // `log` is shared by the streams of all workers in one start.
  FilteredStream(std::shared_ptr<FilteredLog> log, std::string prefix)
      : log_(std::move(log)), prefixer_(std::move(prefix)) {}

  void Feed(absl::string_view bytes);
  // Ends the stream. An incomplete last line is passed as a complete line.
  void Finish();

 private:
  void Pass();

  std::shared_ptr<FilteredLog> log_;
  LinePrefixer prefixer_;
  std::string lines_;
};

}  // namespace ddprun
