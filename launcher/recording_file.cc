#include "launcher/recording_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "os/descriptor.h"

namespace ddprun {

struct RecordingFile::File {
  UniqueFd fd;
  std::atomic<int> error = 0;  // errno of the first failed write, after which nothing is written; 0: none
};

absl::StatusOr<std::unique_ptr<RecordingFile>> RecordingFile::Open(boost::asio::io_context& io,
                                                                   const std::string& path,
                                                                   const AgentLog* log) {
  // O_NONBLOCK: opening a FIFO without a reader fails instead of blocking.
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0600));
  struct stat info {};
  // open() does not change the mode of an existing file.
  if (fd.get() < 0 || fstat(fd.get(), &info) != 0 || (S_ISREG(info.st_mode) && fchmod(fd.get(), 0600) != 0) ||
      fcntl(fd.get(), F_SETFL, 0) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("--record=", path, ": ", std::strerror(errno),
                                                      "; give a file that this user can write"));
  }
  auto file = std::make_shared<File>();
  file->fd = std::move(fd);
  return std::unique_ptr<RecordingFile>(new RecordingFile(io, path, std::move(file), log));
}

StepSink RecordingFile::Sink() {
  return EncodeRecording(
      [this](std::string bytes) { Write(std::move(bytes)); },
      [this] { End(absl::StrCat("it has reached its limit of ", kMaxRecordingBytes >> 20, " MiB")); });
}

void RecordingFile::Write(std::string bytes) {
  if (ended_) return;
  if (disk_.bytes() + bytes.size() > DiskThread::kMaxBytes) return End("the file system is too slow");
  const size_t size = bytes.size();
  disk_.Do(
      [file = file_, bytes = std::move(bytes)] {
        if (file->error == 0) file->error = WriteAll(file->fd.get(), bytes);
      },
      [this] {
        if (const int error = file_->error; error != 0) {
          End(absl::StrCat("write failed: ", std::strerror(error)));
        }
      },
      size);
}

void RecordingFile::End(absl::string_view why) {
  if (std::exchange(ended_, true)) return;
  log_.Say(absl::StrCat("--record=", path_, ": the recording stops here: ", why));
}

void RecordingFile::Flush(std::function<void()> done) {
  const auto once = std::make_shared<std::function<void()>>(std::move(done));
  const auto finish = [this, once](bool complete) {
    if (*once == nullptr) return;
    if (!complete) End("the file system did not accept the last steps in time");
    limit_.cancel();
    std::exchange(*once, nullptr)();
  };
  limit_.expires_after(kRecordingLimit);
  limit_.async_wait([finish](const boost::system::error_code& error) {
    if (!error) finish(false);
  });
  disk_.Finish(kRecordingLimit, finish);
}

}  // namespace ddprun
