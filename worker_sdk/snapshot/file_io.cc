#include "worker_sdk/snapshot/file_io.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>

#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

class File {
 public:
  File(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] bool ok() const { return fd_ >= 0; }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  const int fd_;
};

int Sync(int fd) { return fsync(fd) == 0 ? 0 : errno; }

// Maximum number of bytes per read or write, and therefore between two progress reports.
constexpr size_t kPieceBytes = 4 << 20;
// Number of bytes between two syncs. Regular syncs keep the reported progress close to the actual disk
// writes, and keep the last sync short.
constexpr size_t kBytesPerSync = 64 << 20;

Status WriteAndSync(const std::string& path, std::span<const std::string_view> parts,
                    const ByteProgress& progress = nullptr) {
  const File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.ok()) return FileError("cannot create", path, errno);
  size_t unsynced = 0;
  for (std::string_view rest : parts) {
    while (!rest.empty()) {
      const std::string_view piece = rest.substr(0, kPieceBytes);
      if (const int error = WriteAll(file.fd(), piece)) return FileError("cannot write", path, error);
      rest.remove_prefix(piece.size());
      if ((unsynced += piece.size()) >= kBytesPerSync) {
        if (fdatasync(file.fd()) != 0) return FileError("cannot sync", path, errno);
        unsynced = 0;
      }
      if (progress) progress(static_cast<int64_t>(piece.size()));
    }
  }
  if (const int error = Sync(file.fd())) return FileError("cannot sync", path, error);
  return OkStatus();
}

}  // namespace

Status FileError(std::string_view what, std::string_view path, int error) {
  const std::string message = StrCat(what, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ResourceExhaustedError(message);
    default:
      return Status(ErrnoToStatusCode(error), message);
  }
}

StatusOr<std::string> ReadFile(const std::string& path, const ByteProgress& progress) {
  const File file(path, O_RDONLY);
  if (!file.ok()) return FileError("cannot open", path, errno);
  struct stat info;
  if (fstat(file.fd(), &info) != 0) return FileError("cannot read", path, errno);
  if (S_ISDIR(info.st_mode)) return FileError("cannot read", path, EISDIR);
  // The buffer is one byte larger than the file, so that it has room for the read() that returns 0 at the
  // end of the file. Enlarging the buffer would copy all bytes; this happens only if the file grows while it
  // is read.
  std::string bytes;
  bytes.resize(static_cast<size_t>(info.st_size) + 1);
  size_t size = 0;
  for (;;) {
    if (size == bytes.size()) bytes.resize(size + size / 2 + 1);
    const ssize_t n = read(file.fd(), bytes.data() + size, std::min(kPieceBytes, bytes.size() - size));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError("cannot read", path, errno);
    if (n == 0) break;
    size += n;
    if (progress) progress(n);
  }
  bytes.resize(size);
  return bytes;
}

Status ReplaceFile(const std::string& directory, const std::string& name, const std::string& temporary,
                   std::span<const std::string_view> parts, const std::function<Status()>& last_check,
                   const ByteProgress& progress) {
  const std::string path = StrCat(directory, "/", name);
  const std::string temporary_path = StrCat(directory, "/", temporary);
  Status written = WriteAndSync(temporary_path, parts, progress);
  if (written.ok()) written = last_check();
  if (written.ok() && rename(temporary_path.c_str(), path.c_str()) != 0) {
    written = FileError("cannot rename to", path, errno);
  }
  if (!written.ok()) {
    unlink(temporary_path.c_str());
    return written;
  }
  const File parent(directory, O_RDONLY | O_DIRECTORY);
  if (!parent.ok()) return FileError("cannot open", directory, errno);
  if (const int error = Sync(parent.fd())) return FileError("cannot sync", directory, error);
  return OkStatus();
}

Status WriteFile(const std::string& path, std::string_view bytes) {
  const File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.ok()) return FileError("cannot create", path, errno);
  if (const int error = WriteAll(file.fd(), bytes)) return FileError("cannot write", path, error);
  return OkStatus();
}

StatusOr<std::vector<std::string>> ListDirectory(const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(directory.c_str()), &closedir);
  if (dir == nullptr) return FileError("cannot list", directory, errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(dir.get());
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  if (errno != 0) return FileError("cannot list", directory, errno);
  std::sort(names.begin(), names.end());
  return names;
}

Status MakeWritableDirectory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return FileError("cannot make directory", directory, error.value());
  const std::string probe = StrCat(directory, "/.writable-", getpid());
  const std::string_view byte = "x";
  const Status written = WriteAndSync(probe, {&byte, 1});
  unlink(probe.c_str());
  return written;
}

}  // namespace ddprun
