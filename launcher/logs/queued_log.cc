#include "launcher/logs/queued_log.h"

#include <algorithm>
#include <utility>

namespace ddprun {
namespace {

// What a job takes besides its bytes, about.
constexpr size_t kJobBytes = 512;

struct Result {
  QueuedLog::Range range;
  int64_t room = 0;
  absl::Status problem;
};

void WriteNow(LogFile& file, absl::string_view bytes, Result& result) {
  const bool plain = file.room() >= static_cast<int64_t>(bytes.size());
  const int64_t begin = file.size();
  const auto kept = static_cast<int64_t>(file.Write(bytes));
  if (plain) result.range = {.begin = begin, .size = kept, .rotations = file.rotations()};
  result.room = file.room();
  result.problem = file.TakeProblem();
}

std::string ReadNow(const LogFile& file, const QueuedLog::Range& range) {
  std::string bytes;
  if (range.rotations != file.rotations()) return bytes;
  bytes.resize(static_cast<size_t>(range.size));
  const ssize_t n = file.Read(range.begin, bytes.data(), bytes.size());
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return bytes;
}

}  // namespace

QueuedLog::QueuedLog(DiskThread* disk, std::unique_ptr<LogFile> file,
                     std::function<void(const absl::Status&)> warn)
    : disk_(*disk), warn_(std::move(warn)), file_(std::move(file)), room_(file_->room()) {}

// Closing may wait for the disk, too.
QueuedLog::~QueuedLog() {
  alive_.End();
  disk_.Do([file = std::move(file_)]() mutable { file.reset(); });
}

void QueuedLog::Write(std::shared_ptr<Chunk> chunk, std::function<void(const Range&)> written) {
  const auto size = static_cast<int64_t>(chunk->size);
  in_flight_ += size;
  const auto result = std::make_shared<Result>();
  disk_.Do([file = file_, chunk, result] { WriteNow(*file, chunk->view(), *result); },
           alive_.Guard([this, chunk, result, written = std::move(written), size] {
             in_flight_ -= size;
             room_ = result->room;
             if (!result->problem.ok()) warn_(result->problem);
             if (written) written(result->range);
             // Nothing of this object from here on: it may be gone.
             if (chunk.use_count() == 1) Recycle(std::move(*chunk));
           }),
           chunk->capacity + kJobBytes);
}

void QueuedLog::Read(const Range& range, std::function<void(const std::string&)> read) {
  const auto bytes = std::make_shared<std::string>();
  disk_.Do([file = file_, range, bytes] { *bytes = ReadNow(*file, range); },
           alive_.Guard([bytes, read = std::move(read)] { read(*bytes); }));
}

}  // namespace ddprun
