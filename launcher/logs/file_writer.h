// Writes to a file, as long as that takes, and copes with a disk that is full.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "os/unique_fd.h"

namespace ddprun {

// Errors:  TakeProblem has the first one. When a disk is full, what does not fit is dropped, and once
//          there is room again the file goes on with a line that says how much is missing. After any other
//          all is dropped.
class FileWriter {
 public:
  // The longest line about what is missing.
  static constexpr int64_t kGapLineBytes = 96;

  // `name`: for messages, such as "stderr".
  FileWriter(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  // How many of `bytes`, from the first one on, are in the file now.
  size_t Write(absl::string_view bytes);

  // Goes on in another file; what is missing is said there.
  void SwitchTo(UniqueFd fd);

  int fd() const { return fd_.get(); }
  // Bytes written to this file, lines about what is missing included.
  int64_t size() const { return size_; }
  // All that was to be written is there.
  bool complete() const { return !failed_ && missing_ == 0; }
  // Nothing is written any more.
  bool failed() const { return failed_; }
  // From now on all is dropped.
  void Fail(const absl::Status& why);
  // The first error, once; OK: none, or it was taken.
  absl::Status TakeProblem() { return std::exchange(problem_, absl::OkStatus()); }

 private:
  size_t Put(absl::string_view bytes);
  // False while there is no room even for that.
  bool WriteGapLine();
  void Note(const absl::Status& problem);

  UniqueFd fd_;
  const std::string name_;
  int64_t size_ = 0;
  int64_t missing_ = 0;  // bytes dropped since the disk is full
  bool failed_ = false;
  bool noted_ = false;  // there was a problem
  absl::Status problem_;
};

}  // namespace ddprun
