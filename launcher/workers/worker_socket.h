// Receives reports from workers that use the SDK, keeps each worker's newest report, and requests snapshots.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/worker_message.h"
#include "boost/asio/io_context.hpp"

namespace ddprun {

// An abstract Unix socket (SOCK_SEQPACKET). The socket has no file, so no file is left behind when the agent
// dies. Only connections from this user's processes are accepted. The number of connections is limited to a
// quarter of the descriptor limit, and to at most 1024. At the limit, a new connection replaces the oldest
// connection that has not sent a report. If all connections have sent a report, the new connection is
// refused.
//   Threads: the thread that runs `io`.
class WorkerSocket {
 public:
  // `on_report` is called for each report. `on_problem` is called once for each kind of problem, with a text
  // for people: a connection exceeds the limit, or a worker's library has another version of worker_message.h.
  // Both run on `io`, and never after the WorkerSocket is destroyed.
  //   Errors: kResourceExhausted: the socket cannot be opened.
  static absl::StatusOr<std::unique_ptr<WorkerSocket>> Open(
      boost::asio::io_context& io, std::function<void(const WorkerReport&)> on_report = {},
      std::function<void(const std::string& what)> on_problem = {});
  ~WorkerSocket();
  WorkerSocket(const WorkerSocket&) = delete;
  WorkerSocket& operator=(const WorkerSocket&) = delete;

  // The value of DDPRUN_AGENT_SOCKET.
  const std::string& name() const;
  // Returns the last report of this worker; nullopt if there is none or if it belongs to another round.
  std::optional<WorkerReport> Last(Round round, LocalRank local_rank) const;
  // Returns the report with the lowest step among the workers' last reports in `round`; nullopt if there are
  // none.
  std::optional<WorkerReport> Slowest(Round round) const;
  // Returns the highest step in the workers' last reports in `round`; 0 if there are none.
  int64_t FurthestStep(Round round) const;

  // Sends one snapshot request to every worker of `round`: immediately to connected workers, and to other
  // workers at their first report. If a worker's receive buffer is full, the request is sent again at its
  // next report.
  void AskForSnapshot(Round round);

 private:
  struct State;
  explicit WorkerSocket(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;  // shared with pending operations
};

}  // namespace ddprun
