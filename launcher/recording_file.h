// --record=FILE: the file in which a coordinator of this process leaves what it was told.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/logs/disk_thread.h"
#include "rendezvous/server/recording.h"

namespace ddprun {

// How long the last steps may take to reach the file when the launcher ends.
inline constexpr Duration kRecordingLimit = seconds(5);

// A file system that does not answer delays nobody: with DiskThread::kMaxBytes unwritten the recording ends there.
// What cannot be written is said once.
//   Threads: that of `io`.
class RecordingFile {
 public:
  // Creates the file, or empties it; its owner alone may read it, since nodes' tokens are in it.
  //   Errors: kFailedPrecondition with the path and the reason.
  static absl::StatusOr<std::unique_ptr<RecordingFile>> Open(boost::asio::io_context& io,
                                                             const std::string& path, const AgentLog* log);
  RecordingFile(const RecordingFile&) = delete;
  RecordingFile& operator=(const RecordingFile&) = delete;

  // For Coordinator::RecordTo; not to be called once this is destroyed.
  StepSink Sink();
  // `done` comes when all is written, or nothing more for as long as `limit`.
  void Flush(Duration limit, std::function<void()> done);

 private:
  struct File;

  RecordingFile(boost::asio::io_context& io, std::string path, std::shared_ptr<File> file,
                const AgentLog* log)
      : path_(std::move(path)), log_(*log), file_(std::move(file)), disk_(io) {}
  void Write(std::string bytes);
  void End(absl::string_view why);

  const std::string path_;
  const AgentLog& log_;
  const std::shared_ptr<File> file_;  // shared with the jobs of disk_
  DiskThread disk_;
  bool ended_ = false;
};

}  // namespace ddprun
