// --record=FILE: records the steps of the coordinator in this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/logs/disk_thread.h"
#include "rendezvous/coordinator/recording.h"

namespace ddprun {

// How long Flush waits for the last steps to be written.
inline constexpr Duration kRecordingLimit = seconds(5);

// Writes in a separate thread, so that a file system that does not respond cannot block the coordinator. The
// recording ends if more than DiskThread::kMaxBytes would be pending. Only the first error is logged.
//   Threads: call all methods on the thread of `io`.
class RecordingFile {
 public:
  // Creates or truncates the file. Its mode is 0600, because the recording contains the nodes' secret tokens.
  //   Errors: kFailedPrecondition with the path and the reason.
  static absl::StatusOr<std::unique_ptr<RecordingFile>> Open(boost::asio::io_context& io,
                                                             const std::string& path, const AgentLog* log);
  // For a process that may come to lead a job with a register. Keeps the steps in memory until Begin, at most kMaxKeptBytes.
  static std::unique_ptr<RecordingFile> ForLead(boost::asio::io_context& io, const std::string& path,
                                                const AgentLog* log);
  static constexpr size_t kMaxKeptBytes = 16 << 20;
  // Returns whether Begin may create a file at this path.
  //   Errors: those of Open.
  static absl::Status CheckFolder(const std::string& path);
  RecordingFile(const RecordingFile&) = delete;
  RecordingFile& operator=(const RecordingFile&) = delete;

  // For Coordinator::RecordTo. The sink must not be called after this object is destroyed.
  StepSink Sink();
  // The process leads. The first call creates the file PATH.EPOCH, or the first of PATH.EPOCH-2, PATH.EPOCH-3, ... that does
  // not exist; later calls have no effect. An error ends the recording.
  //   REQUIRES: ForLead.
  void Begin(int64_t epoch);
  // Calls `done` once, on the thread of `io`, when all steps are written or after kRecordingLimit.
  void Flush(std::function<void()> done);

 private:
  struct File;

  RecordingFile(boost::asio::io_context& io, std::string path, std::shared_ptr<File> file,
                const AgentLog* log)
      : path_(std::move(path)), log_(*log), file_(std::move(file)), disk_(io), limit_(io) {}
  void Write(std::string bytes);
  void End(absl::string_view why);

  std::string path_;
  const AgentLog& log_;
  const std::shared_ptr<File> file_;  // shared with tasks of disk_, which may outlive this object
  DiskThread disk_;
  boost::asio::steady_timer limit_;  // for Flush
  bool ended_ = false;
  std::optional<std::string> kept_;  // set between ForLead and Begin
  bool kept_all_ = true;             // false: some bytes did not fit into kept_
};

}  // namespace ddprun
