#include "worker_sdk/comm/testing/file_store.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/core/strings.h"

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

std::string FakeFileStore::PathOf(std::string_view key) const {
  std::string name(key);
  std::replace(name.begin(), name.end(), '/', '%');
  return StrCat(dir_, "/", name);
}

Status FakeFileStore::Set(std::string_view key, std::string_view value) {
  // Not named by pid: processes of several pid namespaces may share the directory.
  std::string temp = dir_ + "/.XXXXXX";
  if (!UniqueFd(mkostemp(temp.data(), O_CLOEXEC))) return ErrnoToStatus(errno, temp);
  if (!(std::ofstream(temp, std::ios::binary) << value << std::flush)) return UnavailableError(temp);
  if (rename(temp.c_str(), PathOf(key).c_str()) != 0) return ErrnoToStatus(errno, PathOf(key));
  return OkStatus();
}

StatusOr<std::string> FakeFileStore::Get(std::string_view key, Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  const UniqueFd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!watch || inotify_add_watch(watch.get(), dir_.c_str(), IN_MOVED_TO) < 0) {
    return ErrnoToStatus(errno, dir_);
  }
  while (true) {
    const TimePoint now = std::chrono::steady_clock::now();
    std::optional<std::string> value = Read(PathOf(key));
    if (value.has_value()) return *std::move(value);
    if (now >= deadline) return DeadlineExceededError(StrCat("no key ", key));
    pollfd p{.fd = watch.get(), .events = POLLIN, .revents = 0};
    poll(&p, 1, static_cast<int>(ToMillis(deadline - now)));
    char events[4096];
    while (read(watch.get(), events, sizeof(events)) > 0) {
    }
  }
}

}  // namespace ddprun
