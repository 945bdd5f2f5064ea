#include "os/descriptor.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace ddprun {
namespace {

constexpr rlim_t kMaxDescriptors = 1 << 20;  // the kernel's default for fs.nr_open

// The kernel's struct linux_dirent64, which getdents64 returns. opendir() is not used, because it allocates
// memory.
struct DirectoryEntry {
  uint64_t inode;
  int64_t offset;
  uint16_t size;
  uint8_t type;
  char name[];
};

bool CloseListedInProc(int first) {
  const int dir = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return false;
  alignas(DirectoryEntry) char buffer[4096];
  // Closing descriptors changes the directory while it is being read, so repeat until a pass closes no
  // descriptor.
  bool closed = true;
  while (closed) {
    closed = false;
    lseek(dir, 0, SEEK_SET);
    long n;
    while ((n = syscall(SYS_getdents64, dir, buffer, sizeof buffer)) > 0) {
      for (long at = 0; at < n;) {
        const auto* entry = reinterpret_cast<const DirectoryEntry*>(buffer + at);
        const int fd = std::atoi(entry->name);
        if (entry->name[0] != '.' && fd >= first && fd != dir) closed = close(fd) == 0 || closed;
        at += entry->size;
      }
    }
  }
  close(dir);
  return true;
}

}  // namespace

void CloseFrom(int first) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
#endif
  if (CloseListedInProc(first)) return;
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  const int end = static_cast<int>(std::min(files.rlim_max, kMaxDescriptors));
  for (int fd = first; fd < end; ++fd) close(fd);
}

}  // namespace ddprun
