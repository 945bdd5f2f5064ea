// Writes to a file with blocking calls, and handles full disks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "os/descriptor.h"

namespace ddprun {

//   Errors: TakeProblem returns the first error. While the disk is full, bytes that do not fit are dropped.
//           When there is room again, a line in the file, the gap line, states how many bytes are missing.
//           After any other error, all further output is dropped.
class FileWriter {
 public:
  // Maximum size of a gap line.
  static constexpr int64_t kGapLineBytes = 96;

  // `name` identifies the file in messages, for example "stderr".
  FileWriter(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  // Writes the longest prefix of `bytes` that fits. Returns the number of bytes written.
  size_t Write(absl::string_view bytes);

  // Directs all later output, including a pending gap line, to another file.
  void SwitchTo(UniqueFd fd);

  int fd() const { return fd_.get(); }
  // The number of bytes written to the current file, including gap lines.
  int64_t size() const { return size_; }
  // True if writing has not failed and no bytes have been dropped since the last gap line.
  bool complete() const { return !failed_ && missing_ == 0; }
  // True if all further output is dropped.
  bool failed() const { return failed_; }
  // Records the error `why` and makes failed() true.
  void Fail(const absl::Status& why);
  // Returns the first error. Returns OK if there is no error or if the error was already returned.
  absl::Status TakeProblem() { return std::exchange(problem_, absl::OkStatus()); }

 private:
  size_t Put(absl::string_view bytes);
  // Returns false if the line does not fit.
  bool WriteGapLine();
  void Note(const absl::Status& problem);

  UniqueFd fd_;
  const std::string name_;
  int64_t size_ = 0;
  int64_t missing_ = 0;  // bytes dropped since the last gap line
  bool failed_ = false;
  bool noted_ = false;  // a problem was recorded
  absl::Status problem_;
};

}  // namespace ddprun
