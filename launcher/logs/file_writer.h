// Writes a file with blocking calls, and handles full disks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "os/descriptor.h"

namespace ddprun {

//   Errors: TakeProblem returns the first one. While the disk is full, bytes that do not fit are dropped;
//           once there is room again, a line in the file (the gap line) states how many are missing. After
//           any other error, all output is dropped.
class FileWriter {
 public:
  // Maximum size of a gap line.
  static constexpr int64_t kGapLineBytes = 96;

  // `name` identifies the file in messages, for example "stderr".
  FileWriter(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  // Returns the number of bytes, from the beginning of `bytes`, that were written.
  size_t Write(absl::string_view bytes);

  // Continues in another file. A pending gap line is also written there.
  void SwitchTo(UniqueFd fd);

  int fd() const { return fd_.get(); }
  // Bytes written to this file, including gap lines.
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
