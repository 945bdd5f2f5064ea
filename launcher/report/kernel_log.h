// Reads the records that the kernel adds to its log, /dev/kmsg.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "os/descriptor.h"

namespace ddprun {

//   Threads: one caller at a time.
class KernelLog {
 public:
  // Opens the log at its end: records that exist are not read. If the log cannot be opened, status() has the
  // reason, and ReadNew finds nothing.
  explicit KernelLog(const std::string& path);

  const absl::Status& status() const { return status_; }
  // Readable when there are new records, if the log is a device; -1 if the log could not be opened.
  int fd() const { return fd_.get(); }

  // Calls `handle` with the text of each record that was added since the last call, without its prefix of
  // priority, number and time. Records of other forms are skipped. If the kernel has overwritten unread
  // records, they are skipped, too.
  void ReadNew(const std::function<void(absl::string_view text)>& handle);

 private:
  void Split(absl::string_view bytes, const std::function<void(absl::string_view)>& handle);

  absl::Status status_;
  UniqueFd fd_;
  std::string
      rest_;  // the beginning of a line of which the rest was not read yet; only if the log is not a device
};

// Whether pids in the kernel's log are pids of this process's namespace: true only in the initial PID
// namespace. Most containers have a namespace of their own.
//   proc: "/proc", or a similar tree in tests.
bool KernelLogHasOurPids(const std::string& proc);

}  // namespace ddprun
