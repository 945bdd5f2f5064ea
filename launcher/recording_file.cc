#include "launcher/recording_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/write_all.h"
#include "launcher/process/unique_fd.h"

namespace ddprun {

struct RecordingFile::File {
  UniqueFd fd;
};

absl::StatusOr<std::unique_ptr<RecordingFile>> RecordingFile::Open(boost::asio::io_context& io,
                                                                   const std::string& path,
                                                                   const AgentLog* log) {
  // O_NONBLOCK: a FIFO without a reader is refused instead of waited for.
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0600));
  if (fd.get() < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("--record=", path, ": cannot be written: ", std::strerror(errno)));
  }
  return std::unique_ptr<RecordingFile>(
      new RecordingFile(io, path, std::make_shared<File>(File{std::move(fd)}), log));
}

StepSink RecordingFile::Sink() {
  return EncodeRecording(
      [this](std::string bytes) { Write(std::move(bytes)); },
      [this] { End(absl::StrCat("it has ", kMaxRecordingBytes >> 20, " MiB, which is its limit")); });
}

void RecordingFile::Write(std::string bytes) {
  if (ended_) return;
  if (disk_.bytes() + bytes.size() > DiskThread::kMaxBytes) return End("its file system is too slow");
  const size_t size = bytes.size();
  const auto failed = std::make_shared<int>(0);
  disk_.Do([file = file_, failed, bytes = std::move(bytes)] { *failed = WriteAll(file->fd.get(), bytes); },
           [this, failed] {
             if (*failed != 0) End(absl::StrCat("cannot be written: ", std::strerror(*failed)));
           },
           size);
}

void RecordingFile::End(absl::string_view why) {
  if (std::exchange(ended_, true)) return;
  log_.Say(absl::StrCat("--record=", path_, ": the recording ends here: ", why));
}

void RecordingFile::Flush(Duration limit, std::function<void()> done) {
  disk_.Finish(limit, [this, done = std::move(done)](bool complete) {
    if (!complete) End("its file system does not answer");
    done();
  });
}

}  // namespace ddprun
