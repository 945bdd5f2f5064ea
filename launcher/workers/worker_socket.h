// Receives reports from workers that use the SDK, keeps the newest report of each, and requests snapshots.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "boost/asio/io_context.hpp"
#include "proto/worker.pb.h"

namespace ddprun {

// An abstract Unix socket (SOCK_SEQPACKET): it has no file, so nothing is left behind however the agent ends.
// Only connections from this user's processes are accepted. The number of connections is limited to a quarter
// of the descriptor limit, at most 1024. At the limit, a new connection replaces the oldest one that has not
// sent a report; if all have sent one, the new connection is refused.
//   Threads: the thread that runs `io`.
class WorkerSocket {
 public:
  // `on_report` is called for each report, and `on_full` once, when a connection first exceeds the limit.
  // Both run on `io`, and never after the WorkerSocket is destroyed.
  //   Errors: kResourceExhausted: the socket cannot be opened.
  static absl::StatusOr<std::unique_ptr<WorkerSocket>> Open(
      boost::asio::io_context& io, std::function<void(const proto::WorkerReport&)> on_report = {},
      std::function<void(const std::string& why)> on_full = {});
  ~WorkerSocket();
  WorkerSocket(const WorkerSocket&) = delete;
  WorkerSocket& operator=(const WorkerSocket&) = delete;

  // The value of DDPRUN_AGENT_SOCKET.
  const std::string& name() const;
  // The last report of this worker in `round`; nullopt: it sent none.
  std::optional<proto::WorkerReport> Last(Round round, LocalRank local_rank) const;
  // The report with the lowest step among the workers' last reports in `round`; nullopt: no reports.
  std::optional<proto::WorkerReport> Slowest(Round round) const;
  // The highest step in the workers' last reports in `round`; 0 if there are no reports.
  int64_t FurthestStep(Round round) const;

  // Requests one snapshot from every worker of `round`: immediately from connected workers, from others when
  // they report. If a worker's receive buffer is full, the request is repeated at its next report.
  void AskForSnapshot(Round round);

 private:
  struct State;
  explicit WorkerSocket(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;  // shared with pending operations
};

}  // namespace ddprun
