// Receives the reports of SDK workers, keeps the newest of each, and asks the workers for snapshots.
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

// An abstract unix socket (SOCK_SEQPACKET): it has no file, so nothing is left behind however the agent ends.
// Only processes of this user are accepted. The number of connections is limited to a quarter of the
// descriptor limit, at most 1024. At the limit, a new connection replaces the oldest one that has not
// reported; if all have reported, it is refused.
//   Threads: the thread that runs `io`.
class WorkerSocket {
 public:
  // `on_report` is called for each report, `on_full` once, when the limit of connections is first exceeded;
  // both run on `io`, and not after the socket is destroyed.
  //   Errors: kResourceExhausted: the socket cannot be opened.
  static absl::StatusOr<std::unique_ptr<WorkerSocket>> Open(
      boost::asio::io_context& io, std::function<void(const proto::WorkerReport&)> on_report = {},
      std::function<void(const std::string& why)> on_full = {});
  ~WorkerSocket();
  WorkerSocket(const WorkerSocket&) = delete;
  WorkerSocket& operator=(const WorkerSocket&) = delete;

  // For DDPRUN_AGENT_SOCKET.
  const std::string& name() const;
  // The last report of this worker in `round`; none: it sent none.
  std::optional<proto::WorkerReport> Last(Round round, LocalRank local_rank) const;
  // Of the workers' last reports in `round`, the one with the lowest step; none: there are no reports.
  std::optional<proto::WorkerReport> Slowest(Round round) const;
  // The highest step of these reports; 0: there are none.
  int64_t FurthestStep(Round round) const;

  // Asks every worker of `round` for a snapshot, once: connected workers now, others when they report. If a
  // worker's receive buffer is full, it is asked again when it next reports.
  void AskForSnapshot(Round round);

 private:
  struct State;
  explicit WorkerSocket(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;  // shared with its pending operations
};

}  // namespace ddprun
