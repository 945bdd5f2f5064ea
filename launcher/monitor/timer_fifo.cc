#include "launcher/monitor/timer_fifo.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/uuid.h"
#include "os/files.h"

namespace ddprun {
namespace {

absl::Status Error(int error, const std::string& path) {
  return absl::ErrnoToStatus(
      error, absl::StrCat("cannot create the watchdog's FIFO ", path,
                          ": set TORCHELASTIC_TIMER_FILE to another path, or unset it for a temporary file"));
}

}  // namespace

absl::StatusOr<TimerFifo> TimerFifo::Create(const std::string& wanted) {
  std::string path = wanted;
  if (wanted.empty()) {
    ASSIGN_OR_RETURN(const std::string dir, TemporaryDirectory(), "the watchdog's FIFO");
    path = absl::StrCat(dir, "/watchdog_timer_", RandomUuid());
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return Error(errno, path);
  if (mkfifo(path.c_str(), 0600) != 0) return Error(errno, path);
  UniqueFd handle(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  // Open the FIFO for writing too, so that it does not reach end of file when the last client closes it.
  UniqueFd reader(open(path.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!handle || !reader) {
    const absl::Status status = Error(errno, path);
    unlink(path.c_str());
    return status;
  }
  return TimerFifo(path, std::move(reader), std::move(handle));
}

TimerFifo::~TimerFifo() {
  if (handle_) RemoveFileOf(handle_.get());
}

}  // namespace ddprun
