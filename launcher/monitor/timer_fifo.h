// The FIFO through which workers set and release watchdog timers.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "os/descriptor.h"

namespace ddprun {

// The destructor removes the file, unless it has been replaced.
class TimerFifo {
 public:
  // If `path` is empty, a new name in the temporary directory is used. As in torchrun, an existing file is
  // replaced.
  //   Errors: that of the failed system call (kPermissionDenied, kNotFound, ...), with the path and a remedy.
  static absl::StatusOr<TimerFifo> Create(const std::string& path);

  TimerFifo(TimerFifo&&) = default;
  TimerFifo& operator=(TimerFifo&&) = delete;
  ~TimerFifo();

  const std::string& path() const { return path_; }
  // The read end: non-blocking, never at end of file. Call once.
  UniqueFd TakeReader() { return std::move(reader_); }
  // O_PATH descriptor of the file, for cleanup after this process has ended. Stays valid across renames.
  int handle() const { return handle_.get(); }

 private:
  TimerFifo(std::string path, UniqueFd reader, UniqueFd handle)
      : path_(std::move(path)), reader_(std::move(reader)), handle_(std::move(handle)) {}

  std::string path_;
  UniqueFd reader_;
  UniqueFd handle_;
};

}  // namespace ddprun
