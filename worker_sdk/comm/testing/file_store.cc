#include "worker_sdk/comm/testing/file_store.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace ddprun {
namespace {

std::optional<std::string> Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream content;
  content << in.rdbuf();
  return content.str();
}

}  // namespace

std::string FakeFileStore::PathOf(absl::string_view key) const {
  return absl::StrCat(dir_, "/", absl::StrReplaceAll(key, {{"/", "%"}}));
}

absl::Status FakeFileStore::Set(absl::string_view key, absl::string_view value) {
  static std::atomic<int> counter{0};
  const std::string temp = absl::StrCat(dir_, "/.", getpid(), ".", counter++);
  if (!(std::ofstream(temp, std::ios::binary) << value << std::flush)) return absl::UnavailableError(temp);
  if (rename(temp.c_str(), PathOf(key).c_str()) != 0) return absl::ErrnoToStatus(errno, PathOf(key));
  return absl::OkStatus();
}

absl::StatusOr<std::string> FakeFileStore::Get(absl::string_view key, Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  const int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (watch < 0 || inotify_add_watch(watch, dir_.c_str(), IN_MOVED_TO) < 0) {
    return absl::ErrnoToStatus(errno, dir_);
  }
  while (true) {
    const TimePoint now = std::chrono::steady_clock::now();
    std::optional<std::string> value = Read(PathOf(key));
    if (value.has_value() || now >= deadline) {
      close(watch);
      if (value.has_value()) return *std::move(value);
      return absl::DeadlineExceededError(absl::StrCat("no key ", key));
    }
    pollfd p{.fd = watch, .events = POLLIN, .revents = 0};
    poll(&p, 1, static_cast<int>(ToMillis(deadline - now)));
    char events[4096];
    while (read(watch, events, sizeof(events)) > 0) {
    }
  }
}

}  // namespace ddprun
