#include "launcher/progress/heartbeat_files.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/process/process_tree.h"

namespace ddprun {

namespace {

// A worker may write a line for each step. More than this is removed.
constexpr int64_t kMaxBytes = 64 << 10;

}  // namespace

HeartbeatFiles::HeartbeatFiles(int num_workers) : files_(num_workers) {
  if (!ProcShowsThisProcess()) return;
  for (File& file : files_) {
    file.fd.Reset(memfd_create("ddprun-heartbeat", MFD_CLOEXEC));
    file.last = StateOf(file);
  }
}

std::string HeartbeatFiles::path(LocalRank worker) const {
  const int fd = files_.at(worker.value()).fd.get();
  return fd < 0 ? "" : absl::StrCat("/proc/", getpid(), "/fd/", fd);
}

HeartbeatFiles::State HeartbeatFiles::StateOf(const File& file) {
  struct stat info {};
  if (!file.fd || fstat(file.fd.get(), &info) != 0) return {};
  return {.seconds = info.st_mtim.tv_sec, .nanoseconds = info.st_mtim.tv_nsec, .size = info.st_size};
}

std::vector<LocalRank> HeartbeatFiles::Changed() {
  std::vector<LocalRank> changed;
  for (size_t i = 0; i < files_.size(); ++i) {
    State now = StateOf(files_[i]);
    if (now.size > kMaxBytes && ftruncate(files_[i].fd.get(), 0) == 0) {
      files_[i].last = {};
      now = StateOf(files_[i]);
    }
    if (std::exchange(files_[i].last, now) != now) changed.emplace_back(static_cast<int>(i));
  }
  return changed;
}

}  // namespace ddprun
