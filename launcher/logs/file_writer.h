// Blocking writer of a file that handles full disks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "os/descriptor.h"

namespace ddprun {

//   Errors: TakeProblem returns the first one. While the disk is full, what does not fit is dropped; once
//           there is room again, a line in the file states how much is missing. After any other error all
//           output is dropped.
class FileWriter {
 public:
  // Upper bound on the size of the line about missing bytes.
  static constexpr int64_t kGapLineBytes = 96;

  // `name` identifies the file in messages: "stderr".
  FileWriter(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  // Returns how many of `bytes`, from the first one on, were written.
  size_t Write(absl::string_view bytes);

  // Continues in another file, which also gets the line about missing bytes.
  void SwitchTo(UniqueFd fd);

  int fd() const { return fd_.get(); }
  // Bytes written to this file, including lines about missing bytes.
  int64_t size() const { return size_; }
  // No bytes are missing.
  bool complete() const { return !failed_ && missing_ == 0; }
  // All further bytes are dropped.
  bool failed() const { return failed_; }
  // Sets failed().
  void Fail(const absl::Status& why);
  // Returns the first error, once; OK if there is none or it was already taken.
  absl::Status TakeProblem() { return std::exchange(problem_, absl::OkStatus()); }

 private:
  size_t Put(absl::string_view bytes);
  // Returns false if there is no room for the line.
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
