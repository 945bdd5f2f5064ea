// A worker's log file, written in a DiskThread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/alive.h"
#include "launcher/logs/chunk.h"
#include "launcher/logs/disk_thread.h"
#include "launcher/logs/log_file.h"

namespace ddprun {

//   Order:   jobs run and are answered in the order of their calls.
//   Errors:  the first one is given to `warn`; see FileWriter.
//   Threads: that of the io_context.
class QueuedLog {
 public:
  // Bytes that are in the file.
  struct Range {
    int64_t begin = 0;
    int64_t size = 0;
    int rotations = 0;  // of the file when they were written
  };
  // `disk`, borrowed, outlives this.
  QueuedLog(DiskThread* disk, std::unique_ptr<LogFile> file, std::function<void(const absl::Status&)> warn);
  QueuedLog(const QueuedLog&) = delete;
  QueuedLog& operator=(const QueuedLog&) = delete;
  // What was given is still written; nothing more is called.
  ~QueuedLog();

  // Takes everything, also when the disk is full() of work. `written` gets where the chunk is: all of it, or
  // as much of its beginning as can be read again.
  void Write(std::shared_ptr<Chunk> chunk, std::function<void(const Range&)> written = nullptr);
  // As far as is known, the next `num_bytes` can be read again.
  bool Keeps(size_t num_bytes) const { return in_flight_ + static_cast<int64_t>(num_bytes) <= room_; }
  // Nothing if the bytes are not there any more.
  void Read(const Range& range, std::function<void(const std::string&)> read);

 private:
  DiskThread& disk_;
  const std::function<void(const absl::Status&)> warn_;
  std::shared_ptr<LogFile> file_;  // with the jobs in the thread, which alone touch it
  int64_t room_;                   // of the file, by the last answer
  int64_t in_flight_ = 0;          // bytes
  Alive alive_;
};

}  // namespace ddprun
