#include "launcher/recording_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "os/descriptor.h"

namespace ddprun {

namespace {

// Number of files of one epoch. A job that is started again at the same path may have the same epochs again.
constexpr int kMaxFilesOfEpoch = 1000;

absl::Status CannotWrite(const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat("--record=", path, ": ", std::strerror(errno), "; give a file that this user can write"));
}

}  // namespace

struct RecordingFile::File {
  UniqueFd fd;
  std::atomic<int> error = 0;  // errno of the first failure, after which nothing is written; 0: none
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
    return CannotWrite(path);
  }
  auto file = std::make_shared<File>();
  file->fd = std::move(fd);
  return std::unique_ptr<RecordingFile>(new RecordingFile(io, path, std::move(file), log));
}

absl::Status RecordingFile::CheckFolder(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  return access(folder.c_str(), W_OK | X_OK) == 0 ? absl::OkStatus() : CannotWrite(path);
}

std::unique_ptr<RecordingFile> RecordingFile::ForLead(boost::asio::io_context& io, const std::string& path,
                                                      const AgentLog* log) {
  std::unique_ptr<RecordingFile> recording(new RecordingFile(io, path, std::make_shared<File>(), log));
  recording->kept_.emplace();
  return recording;
}

void RecordingFile::Begin(int64_t epoch) {
  if (!kept_) return;
  std::string kept = *std::exchange(kept_, std::nullopt);
  absl::StrAppend(&path_, ".", epoch);
  if (!kept_all_) return End("too many processes have connected to this one before it led the job");
  // In the thread, because a file system that does not respond must not delay the lead.
  const auto used = std::make_shared<std::string>(path_);
  disk_.Do(
      [file = file_, used] {
        const std::string path = *used;
        for (int number = 2; number <= kMaxFilesOfEpoch + 1; ++number) {
          file->fd = UniqueFd(open(used->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
          file->error = file->fd.get() < 0 ? errno : 0;
          if (file->error != EEXIST) return;
          *used = absl::StrCat(path, "-", number);
        }
      },
      [this, used] {
        path_ = *used;
        if (const int error = file_->error; error != 0) {
          return End(absl::StrCat("cannot create it: ", std::strerror(error)));
        }
        log_.Detail(absl::StrCat("recording the coordinator to ", path_));
      });
  Write(std::move(kept));
}

StepSink RecordingFile::Sink() {
  return EncodeRecording(
      [this](std::string bytes) { Write(std::move(bytes)); },
      [this] { End(absl::StrCat("it has reached its limit of ", kMaxRecordingBytes >> 20, " MiB")); });
}

void RecordingFile::Write(std::string bytes) {
  if (ended_) return;
  if (kept_) {
    kept_all_ = kept_all_ && kept_->size() + bytes.size() <= kMaxKeptBytes;
    if (kept_all_) kept_->append(bytes);
    return;
  }
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
