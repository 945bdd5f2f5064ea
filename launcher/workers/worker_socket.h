// Where workers of the SDK report to, and are asked for snapshots: keeps the newest report of each.
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

// An abstract unix socket (SOCK_SEQPACKET): it has no file, so nothing is left when the agent goes, however
// it goes. Only processes of this user are heard. All connections together take at most a quarter of the
// descriptors that this process may have, and at most 1024: a newcomer beyond that takes the place of the
// oldest connection that has not reported; where all have, it is refused.
//   Threads: that of `io`.
class WorkerSocket {
 public:
  // `on_report` is called for each report, `on_full` once, when connections begin to be refused; from `io`,
  // and not once the socket is destroyed.
  //   Errors: kResourceExhausted: no descriptor left.
  static absl::StatusOr<std::unique_ptr<WorkerSocket>> Open(
      boost::asio::io_context& io, std::function<void(const proto::WorkerReport&)> on_report = {},
      std::function<void(const std::string& why)> on_full = {});
  ~WorkerSocket();
  WorkerSocket(const WorkerSocket&) = delete;
  WorkerSocket& operator=(const WorkerSocket&) = delete;

  // For DDPRUN_AGENT_SOCKET.
  const std::string& name() const;
  // The last report of this worker in `round`, if it sent one.
  std::optional<proto::WorkerReport> Last(Round round, LocalRank local_rank) const;
  // Of the last reports in `round` that with the least step; none: there are no reports.
  std::optional<proto::WorkerReport> Slowest(Round round) const;
  // The greatest step of any report in `round`, 0 if there are none.
  int64_t FurthestStep(Round round) const;

  // Asks every worker of `round` for a snapshot, once: those that are connected now, the others when they
  // report. A worker that does not listen is asked again with its next report.
  void AskForSnapshot(Round round);

 private:
  struct State;
  explicit WorkerSocket(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;  // with its pending operations
};

}  // namespace ddprun
