#include "launcher/report/kernel_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

// The initial PID namespace (PROC_PID_INIT_INO). PIDs in the kernel's log belong to this namespace.
constexpr char kFirstPidNamespace[] = "pid:[4026531836]";
constexpr size_t kMaxRecord = 8192;  // of a device; see printk's CONSOLE_EXT_LOG_MAX

}  // namespace

KernelLog::KernelLog(const std::string& path)
    : fd_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
  if (fd_ && lseek(fd_.get(), 0, SEEK_END) >= 0) return;
  status_ = absl::ErrnoToStatus(errno, path);
  fd_.Reset();
}

void KernelLog::ReadNew(const std::function<void(absl::string_view)>& handle) {
  if (!fd_) return;
  char bytes[kMaxRecord];
  while (true) {
    const ssize_t n = read(fd_.get(), bytes, sizeof bytes);
    if (n > 0) {
      Split(absl::string_view(bytes, static_cast<size_t>(n)), handle);
    } else if (n == 0 || (errno != EINTR && errno != EPIPE)) {  // EPIPE: unread records were overwritten
      return;
    }
  }
}

// Parses records such as "4,1742,12793,-;the text\n SUBSYSTEM=pci\n". A device returns one record for each
// read.
void KernelLog::Split(absl::string_view bytes, const std::function<void(absl::string_view)>& handle) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (rest_.size() < kMaxRecord) absl::StrAppend(&rest_, bytes.substr(0, end));
    if (end == absl::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    const size_t prefix = rest_.find(';');
    const bool is_property = !rest_.empty() && rest_[0] == ' ';
    if (!is_property && prefix != std::string::npos) handle(absl::string_view(rest_).substr(prefix + 1));
    rest_.clear();
  }
}

bool KernelLogHasOurPids(const std::string& proc) {
  char text[64] = {};
  return readlink(absl::StrCat(proc, "/self/ns/pid").c_str(), text, sizeof text - 1) > 0 &&
         absl::string_view(text) == kFirstPidNamespace;
}

}  // namespace ddprun
