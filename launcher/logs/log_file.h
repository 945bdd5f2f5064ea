// The file of one stream of a worker, as long as wanted or no larger than it may be.
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

// With a limit there are two files: `path` with the newest bytes, and `path`.1 with those before them. When
// `path` has reached half the limit it becomes `path`.1, and the older one goes. So there are never more
// bytes on the disk than the limit, and never less than the newest half of it. Each file begins and ends with
// a whole line, but for a line that is longer than half the limit.
//   Errors:  see FileWriter.
class LogFile {
 public:
  // Two files, and room in each for a few lines.
  static constexpr int64_t kLeastMaxBytes = 4096;

  // Truncates what is there.
  //   max_bytes: 0, no limit, or at least kLeastMaxBytes.
  //   Errors:    of open, with the path.
  static absl::StatusOr<std::unique_ptr<LogFile>> Open(const std::string& path, int64_t max_bytes);
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  // How many of `bytes`, from the first one on, are in the file now.
  size_t Write(absl::string_view bytes);
  // As FileWriter.
  absl::Status TakeProblem() { return writer_.TakeProblem(); }

  // How many more bytes go behind size() in `path` itself as long as the disk has room; 0 once something is
  // missing.
  int64_t room() const;
  // How often `path` has become another file.
  int rotations() const { return rotations_; }
  // Bytes in `path`.
  int64_t size() const { return writer_.size(); }
  // What `path` has at `offset`, at most `num_bytes`; as pread.
  ssize_t Read(int64_t offset, char* buffer, size_t num_bytes) const;

 private:
  LogFile(const std::string& path, int64_t max_bytes, UniqueFd fd);
  // How many of `bytes` still go into this file; 0: none, another one must be begun.
  size_t Fitting(absl::string_view bytes) const;
  // Begins another file with the line that is not complete. If it cannot, the writer has failed.
  void Rotate();

  const std::string path_;
  const int64_t max_file_bytes_;  // of each of the two; 0: no limit
  FileWriter writer_;
  int64_t line_begin_ = 0;  // in `path`, of the line that is not complete
  int rotations_ = 0;
};

// A worker's log file, written in a DiskThread.

//   Order:   jobs run and are answered in the order of their calls.
//   Errors:  the first one is given to `warn`; see FileWriter.
//   Threads: that of the io_context.
class QueuedLog {
 public:
  // Bytes that are in the file.
  struct Range {
    int64_t begin = 0;
    int64_t size = 0;
    int rotations = 0;  // of the file when they were written
  };
  // `disk`, borrowed, outlives this.
  QueuedLog(DiskThread* disk, std::unique_ptr<LogFile> file, std::function<void(const absl::Status&)> warn);
  QueuedLog(const QueuedLog&) = delete;
  QueuedLog& operator=(const QueuedLog&) = delete;
  // What was given is still written; nothing more is called.
  ~QueuedLog();

  // Takes everything, also when the disk is full() of work. `written` gets where the chunk is: all of it, or
  // as much of its beginning as can be read again.
  void Write(std::shared_ptr<Chunk> chunk, std::function<void(const Range&)> written = nullptr);
  // As far as is known, the next `num_bytes` can be read again.
  bool Keeps(size_t num_bytes) const { return in_flight_ + static_cast<int64_t>(num_bytes) <= room_; }
  // Nothing if the bytes are not there any more.
  void Read(const Range& range, std::function<void(const std::string&)> read);

 private:
  DiskThread& disk_;
  const std::function<void(const absl::Status&)> warn_;
  std::shared_ptr<LogFile> file_;  // with the jobs in the thread, which alone touch it
  int64_t room_;                   // of the file, by the last answer
  int64_t in_flight_ = 0;          // bytes
  Alive alive_;
};

// The lines of all workers' tee'd streams that have one of some texts in them, together in one file.

class FilteredLog {
 public:
  //   filters: a line is taken if it has one of these in it; an empty one is in each line.
  FilteredLog(std::unique_ptr<QueuedLog> file, std::vector<std::string> filters)
      : file_(std::move(file)), filters_(std::move(filters)) {}

  // Whole lines, each with a prefix of that size, which is not looked into.
  void WriteMatching(absl::string_view lines, size_t prefix_size);

 private:
  const std::unique_ptr<QueuedLog> file_;
  const std::vector<std::string> filters_;
};

// What one stream gives to it. Sees each line as soon as it is written, whatever the console does.
class FilteredStream {
 public:
  // `log` is shared by the streams of all workers of a start.
  FilteredStream(std::shared_ptr<FilteredLog> log, std::string prefix)
      : log_(std::move(log)), prefixer_(std::move(prefix)) {}

  void Feed(absl::string_view bytes);
  // Nothing comes any more.
  void Finish();

 private:
  void Pass();

  std::shared_ptr<FilteredLog> log_;
  LinePrefixer prefixer_;
  std::string lines_;
};

}  // namespace ddprun
