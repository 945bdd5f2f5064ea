#include "os/files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun {

void RemoveFileOf(int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = '\0';
  // If the file was unlinked, `path` ends in " (deleted)". Another file may have exactly that path, so
  // compare the inodes.
  struct stat opened, named;
  if (fstat(fd, &opened) != 0 || lstat(path, &named) != 0) return;
  if (opened.st_dev == named.st_dev && opened.st_ino == named.st_ino) unlink(path);
}

namespace {

// Returns whether a file can be written in `dir`. Writes a file to find out, because access() gives wrong
// answers for /proc, under quotas, and for root on some network file systems.
bool CanHoldFiles(const std::string& dir) {
  std::string path = dir + "/ddprun_XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = write(fd, "test", 4) == 4;
  close(fd);
  unlink(path.c_str());
  return written;
}

}  // namespace

absl::StatusOr<std::string> TemporaryDirectory() {
  std::vector<std::string> candidates;
  for (const char* const name : {"TMPDIR", "TEMP", "TMP"}) {
    const char* const value = getenv(name);
    if (value != nullptr && *value != '\0') candidates.emplace_back(value);
  }
  std::error_code ignored;
  for (const char* const dir : {"/tmp", "/var/tmp", "/usr/tmp"}) candidates.emplace_back(dir);
  candidates.push_back(std::filesystem::current_path(ignored).string());
  for (const std::string& candidate : candidates) {
    const std::string dir = std::filesystem::absolute(candidate, ignored).string();
    if (!dir.empty() && CanHoldFiles(dir)) return dir;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no usable temporary directory: no file can be written in any of ",
                   absl::StrJoin(candidates, ", "), "; set TMPDIR to a writable directory"));
}

}  // namespace ddprun
