// The file that tells workers without the SDK that their node is taken away: $DDPRUN_NOTICE_FILE.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/worker_message.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "launcher/logs/disk_thread.h"
#include "os/descriptor.h"

namespace ddprun {

// The file does not exist until a round is to be stopped. Then it has one line, a JSON object:
//   {"stop_at": 1764212345.678, "reason": "received SIGUSR1"}
//   stop_at: when the round is ended; seconds since 1970 (Unix time).
// A new time replaces the file, so that a reader never sees a part of it. Never blocks `io`.
//   Threads: the thread that runs `io`.
class NoticeFile {
 public:
  // Called after each Write, never during a call to this object, with an O_PATH descriptor of the file, which is borrowed during
  // the call.
  //   Errors: of the system; the message has the path.
  using Written = std::function<void(const absl::StatusOr<int>& file)>;

  NoticeFile(boost::asio::io_context& io, Written written);

  // Finds the directory for temporary files, and calls `done`. If the directory does not answer within 2 s, path() stays empty.
  // Call it once, before the other methods.
  void Open(std::function<void()> done);

  // Where the file will be in this round; empty if there is no directory for temporary files.
  [[nodiscard]] std::string path() const;
  // Changes the path, so that the workers of a new round do not see the notice of an earlier one. Removes that one.
  void BeginRound();
  // Replaces the file. No-op if path() is empty.
  void Write(const WorkerStop& stop);

 private:
  void Opened();

  const Written written_;
  std::string prefix_;            // empty: no directory
  std::function<void()> opened_;  // null: Open is complete
  boost::asio::steady_timer limit_;
  int64_t round_ = 0;    // number of BeginRound calls
  bool exists_ = false;  // Write was called in this round
  DiskThread disk_;
};

}  // namespace ddprun
