#include "launcher/process/testing/hanging_file.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/process/testing/own_mounts.h"

namespace ddprun {
namespace {

constexpr uint64_t kFile = 2;  // FUSE_ROOT_ID is 1
constexpr size_t kRequestBytes = 64 << 10;

// Serves the file system until the other end of `life` is closed.
class Server {
 public:
  Server(UniqueFd fuse, UniqueFd life, UniqueFd hung)
      : fuse_(std::move(fuse)), life_(std::move(life)), hung_(std::move(hung)) {}

  void Run() {
    std::vector<char> request(kRequestBytes);
    while (true) {
      pollfd fds[] = {{.fd = fuse_.get(), .events = POLLIN, .revents = 0},
                      {.fd = life_.get(), .events = POLLIN, .revents = 0}};
      if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
      if (fds[1].revents != 0 || (fds[0].revents & (POLLERR | POLLHUP)) != 0) return;
      if (fds[0].revents == 0) continue;
      const ssize_t n = read(fuse_.get(), request.data(), request.size());
      if (n < 0 && errno == ENODEV) return;  // unmounted
      if (n >= static_cast<ssize_t>(sizeof(fuse_in_header))) Serve(request.data());
    }
  }

 private:
  void Serve(const char* request) {
    fuse_in_header in;
    std::memcpy(&in, request, sizeof in);
    const char* const body = request + sizeof in;
    switch (in.opcode) {
      case FUSE_INIT: {
        fuse_init_in theirs;
        std::memcpy(&theirs, body, sizeof theirs);
        fuse_init_out out = {};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = FUSE_KERNEL_MINOR_VERSION;
        out.max_write = 4096;
        return Reply(in, out);
      }
      case FUSE_GETATTR: {
        fuse_attr_out out = {};
        out.attr = Attributes(in.nodeid);
        return Reply(in, out);
      }
      case FUSE_LOOKUP: {
        if (std::strcmp(body, "file") != 0) return Refuse(in, ENOENT);
        fuse_entry_out out = {};
        out.nodeid = kFile;
        out.attr = Attributes(kFile);
        return Reply(in, out);
      }
      case FUSE_OPEN: {  // never answered
        [[maybe_unused]] const ssize_t n = write(hung_.get(), "x", 1);
        return;
      }
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
      case FUSE_INTERRUPT:
        return;  // these requests need no answer
      default:
        return Refuse(in, ENOSYS);
    }
  }

  static fuse_attr Attributes(uint64_t node) {
    fuse_attr attr = {};
    attr.ino = node;
    attr.mode = node == kFile ? S_IFREG | 0755 : S_IFDIR | 0755;
    attr.nlink = 1;
    return attr;
  }

  template <typename Out>
  void Reply(const fuse_in_header& in, Out& out) {
    fuse_out_header header = {.len = sizeof header + sizeof out, .error = 0, .unique = in.unique};
    iovec parts[] = {{.iov_base = &header, .iov_len = sizeof header},
                     {.iov_base = &out, .iov_len = sizeof out}};
    [[maybe_unused]] const ssize_t n = writev(fuse_.get(), parts, 2);
  }
  void Refuse(const fuse_in_header& in, int error) {
    fuse_out_header header = {.len = sizeof header, .error = -error, .unique = in.unique};
    [[maybe_unused]] const ssize_t n = write(fuse_.get(), &header, sizeof header);
  }

  const UniqueFd fuse_;
  const UniqueFd life_;
  const UniqueFd hung_;
};

// Runs in a child process, which exits when the test process closes its end of `life` or ends.
[[noreturn]] void Serve(UniqueFd fuse, UniqueFd life, UniqueFd hung, const std::string& mount_point) {
  setsid();
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  Server(std::move(fuse), std::move(life), std::move(hung)).Run();  // ~Server closes the FUSE connection
  umount2(mount_point.c_str(), MNT_DETACH);
  rmdir(mount_point.c_str());
  _exit(0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HangingFile>> HangingFile::Create(const std::string& dir) {
  RETURN_IF_ERROR(UseOwnMounts());
  UniqueFd fuse(open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!fuse) return absl::ErrnoToStatus(errno, "cannot open /dev/fuse");
  int life[2], hung[2];
  if (pipe2(life, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  UniqueFd life_reader(life[0]), life_writer(life[1]);
  if (pipe2(hung, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  UniqueFd hung_reader(hung[0]), hung_writer(hung[1]);
  std::string mount_point = absl::StrCat(dir, "/hangingXXXXXX");
  if (mkdtemp(mount_point.data()) == nullptr) return absl::ErrnoToStatus(errno, mount_point);
  const std::string options = absl::StrCat("fd=", fuse.get(), ",rootmode=40000,user_id=", getuid(),
                                           ",group_id=", getgid(), ",allow_other");
  if (mount("ddprun_test", mount_point.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
    const absl::Status status = absl::ErrnoToStatus(errno, "cannot mount a FUSE file system");
    rmdir(mount_point.c_str());
    return status;
  }
  const pid_t server = fork();
  if (server == 0) {
    life_writer.Reset();
    hung_reader.Reset();
    Serve(std::move(fuse), std::move(life_reader), std::move(hung_writer), mount_point);
  }
  std::unique_ptr<HangingFile> file(
      new HangingFile(mount_point, server, std::move(life_writer), std::move(hung_reader)));
  if (server < 0) {
    umount2(mount_point.c_str(), MNT_DETACH);
    rmdir(mount_point.c_str());
    return absl::ErrnoToStatus(errno, "fork");
  }
  return file;
}

bool HangingFile::AwaitOneThatHangs(Duration limit) {
  pollfd ready = {.fd = hung_.get(), .events = POLLIN, .revents = 0};
  char byte;
  return poll(&ready, 1, static_cast<int>(ToMillis(limit))) == 1 && read(hung_.get(), &byte, 1) == 1;
}

void HangingFile::Release() {
  if (!life_) return;
  life_.Reset();
  if (server_ > 0) waitpid(server_, nullptr, 0);
}

}  // namespace ddprun
