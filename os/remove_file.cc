#include "os/remove_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdio>

namespace ddprun {

void RemoveFileOf(int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return;
  path[length] = '\0';
  // The link to a removed file ends in " (deleted)"; another file may have that name.
  struct stat opened, named;
  if (fstat(fd, &opened) != 0 || lstat(path, &named) != 0) return;
  if (opened.st_dev == named.st_dev && opened.st_ino == named.st_ino) unlink(path);
}

}  // namespace ddprun
