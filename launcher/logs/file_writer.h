// Writes to a file at once, and copes with a disk that is full.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/process/unique_fd.h"

namespace ddprun {

// Errors:  the first one is given to `on_error`. When a disk is full, what does not fit is dropped, and once
//          there is room again the file goes on with a line that says how much is missing. After any other
//          all is dropped.
class FileWriter {
 public:
  using OnError = std::function<void(const absl::Status&)>;

  // The longest line about what is missing.
  static constexpr int64_t kGapLineBytes = 96;

  // `name`: for messages, such as "stderr".
  FileWriter(UniqueFd fd, std::string name, OnError on_error);

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

 private:
  size_t Put(absl::string_view bytes);
  // False while there is no room even for that.
  bool WriteGapLine();

  UniqueFd fd_;
  const std::string name_;
  const OnError on_error_;
  int64_t size_ = 0;
  int64_t missing_ = 0;  // bytes dropped since the disk is full
  bool failed_ = false;
  bool told_ = false;  // on_error_ was called
};

}  // namespace ddprun
