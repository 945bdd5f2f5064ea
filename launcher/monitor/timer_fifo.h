// The FIFO through which workers tell their timers.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "os/unique_fd.h"

namespace ddprun {

// Removed by the destructor, if it is still the one that was made here.
class TimerFifo {
 public:
  // `path` empty: a new name below the temporary directory. A file that is there is replaced, as torchrun
  // does.
  //   Errors: kPermissionDenied, kNotFound, ... with the path and what to do.
  static absl::StatusOr<TimerFifo> Create(const std::string& path);

  TimerFifo(TimerFifo&&) = default;
  TimerFifo& operator=(TimerFifo&&) = delete;
  ~TimerFifo();

  const std::string& path() const { return path_; }
  // Its reading end, which does not block and never sees an end of file. Once.
  UniqueFd TakeReader() { return std::move(reader_); }
  // Names the file (O_PATH), also when somebody renames it: for whoever cleans up after this process.
  int handle() const { return handle_.get(); }

 private:
  TimerFifo(std::string path, UniqueFd reader, UniqueFd handle)
      : path_(std::move(path)), reader_(std::move(reader)), handle_(std::move(handle)) {}

  std::string path_;
  UniqueFd reader_;
  UniqueFd handle_;
};

}  // namespace ddprun
