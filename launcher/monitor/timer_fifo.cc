#include "launcher/monitor/timer_fifo.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/uuid.h"
#include "os/remove_file.h"
#include "os/temporary_directory.h"

namespace ddprun {
namespace {

absl::Status Error(int error, const std::string& path) {
  return absl::ErrnoToStatus(
      error, absl::StrCat("the watchdog's FIFO cannot be made at ", path,
                          ": name another file in TORCHELASTIC_TIMER_FILE, or unset it for a temporary one"));
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
  // For writing too: with a writer there always is, nothing is said when clients come and go.
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
