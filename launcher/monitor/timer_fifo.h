// The FIFO through which workers set and release watchdog timers.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "os/descriptor.h"

namespace ddprun {

// The destructor removes the file, unless it has been replaced.
class TimerFifo {
 public:
  // Creates the FIFO at `path`, or at a new path in the temporary directory if `path` is empty. Like
  // torchrun, replaces an existing file.
  //   Errors: the error of the failed system call (kPermissionDenied, kNotFound, ...), with the path and a
  //           remedy.
  static absl::StatusOr<TimerFifo> Create(const std::string& path);

  TimerFifo(TimerFifo&&) = default;
  TimerFifo& operator=(TimerFifo&&) = delete;
  ~TimerFifo();

  const std::string& path() const { return path_; }
  // Returns the read end, which is non-blocking and never reaches end of file. Call at most once.
  UniqueFd TakeReader() { return std::move(reader_); }
  // Returns an O_PATH descriptor of the file. Another process can use the descriptor to remove the file after
  // this process has ended. The descriptor stays valid if the file is renamed.
  int handle() const { return handle_.get(); }

 private:
  TimerFifo(std::string path, UniqueFd reader, UniqueFd handle)
      : path_(std::move(path)), reader_(std::move(reader)), handle_(std::move(handle)) {}

  std::string path_;
  UniqueFd reader_;
  UniqueFd handle_;
};

}  // namespace ddprun
