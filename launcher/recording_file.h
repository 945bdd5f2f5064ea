// --record=FILE: the file with the recording of this process's coordinator.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/logs/disk_thread.h"
#include "rendezvous/coordinator/recording.h"

namespace ddprun {

// How long the last steps may take to reach the file when the launcher ends.
inline constexpr Duration kRecordingLimit = seconds(5);

// A file system that does not answer does not block the coordinator: with DiskThread::kMaxBytes unwritten the
// recording ends. The first error is logged once.
//   Threads: that of `io`.
class RecordingFile {
 public:
  // Creates or truncates the file, with mode 0600: it holds the nodes' tokens.
  //   Errors: kFailedPrecondition with the path and the reason.
  static absl::StatusOr<std::unique_ptr<RecordingFile>> Open(boost::asio::io_context& io,
                                                             const std::string& path, const AgentLog* log);
  RecordingFile(const RecordingFile&) = delete;
  RecordingFile& operator=(const RecordingFile&) = delete;

  // For Coordinator::RecordTo; not to be called once this is destroyed.
  StepSink Sink();
  // `done` comes when all is written, after kRecordingLimit at the latest. Once.
  void Flush(std::function<void()> done);

 private:
  struct File;

  RecordingFile(boost::asio::io_context& io, std::string path, std::shared_ptr<File> file,
                const AgentLog* log)
      : path_(std::move(path)), log_(*log), file_(std::move(file)), disk_(io), limit_(io) {}
  void Write(std::string bytes);
  void End(absl::string_view why);

  const std::string path_;
  const AgentLog& log_;
  const std::shared_ptr<File> file_;  // shared with the jobs of disk_
  DiskThread disk_;
  boost::asio::steady_timer limit_;  // of Flush
  bool ended_ = false;
};

}  // namespace ddprun
