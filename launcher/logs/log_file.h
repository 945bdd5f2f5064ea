// The file of one stream of a worker, as long as wanted or no larger than it may be.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/logs/file_writer.h"

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

}  // namespace ddprun
