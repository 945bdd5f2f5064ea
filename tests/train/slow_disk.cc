// An LD_PRELOAD library that delays each write to a snapshot by 100 ms, as on very slow storage.
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

namespace {

bool IsSnapshot(int fd) {
  char link[64], path[PATH_MAX + 1] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return readlink(link, path, PATH_MAX) > 0 && strstr(path, "/.snapshot-") != nullptr;
}

}  // namespace

extern "C" ssize_t write(int fd, const void* bytes, size_t size) {
  static const auto real = reinterpret_cast<ssize_t (*)(int, const void*, size_t)>(dlsym(RTLD_NEXT, "write"));
  if (IsSnapshot(fd)) {
    const timespec delay = {.tv_sec = 0, .tv_nsec = 100'000'000};
    nanosleep(&delay, nullptr);
  }
  return real(fd, bytes, size);
}
