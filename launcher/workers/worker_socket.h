// Exchanges messages with workers that use the SDK: receives their reports and keeps each worker's newest one, requests
// snapshots, registers workers that may survive their round, and offers them the next one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/worker_evidence.h"
#include "base/worker_message.h"
#include "boost/asio/io_context.hpp"

namespace ddprun {

// An abstract Unix socket (SOCK_SEQPACKET). The socket has no file, so no file is left behind when the agent
// dies. Only connections from this user's processes are accepted. The number of connections is limited to a
// quarter of the descriptor limit, and to at most 1024; each has one descriptor, and a second one if its worker shares memory. At the limit, a new connection replaces the oldest
// connection that has not sent a report and is not registered. If there is none, the new connection is refused.
//
// A worker that asks to survive its round registers its connection, for as long as the connection lasts. A message
// about surviving is ignored if it belongs to another round than the last BeginRound, or to a worker that another
// connection has registered, and if it says that the worker has parked without being registered.
//   Threads: the thread that runs `io`.
class WorkerSocket {
 public:
  struct SurvivalHandlers {
    // A worker asks to survive. `pid` is that of the process that opened the connection; 0 if unknown. Returns whether
    // the connection is registered. SetLevels answers the worker, during the call or later.
    std::function<bool(const WorkerSurvival&, pid_t pid)> asks;
    // A registered worker has parked.
    std::function<void(const WorkerSurvival&)> parked;
    // The connection of a registered worker is closed.
    std::function<void(LocalRank)> unregistered;
  };

  // `on_report` is called for each report. `on_problem` is called once for each kind of problem, with a text
  // for people: a connection exceeds the limit, or a worker's library has another version of worker_message.h.
  // If `survivals` is empty, no worker is registered. All handlers run on `io`, never inside a call of a method, and
  // never after the WorkerSocket is destroyed.
  //   Errors: kResourceExhausted: the socket cannot be opened.
  static absl::StatusOr<std::unique_ptr<WorkerSocket>> Open(
      boost::asio::io_context& io, std::function<void(const WorkerReport&)> on_report = {},
      std::function<void(const std::string& what)> on_problem = {}, SurvivalHandlers survivals = {});
  ~WorkerSocket();
  WorkerSocket(const WorkerSocket&) = delete;
  WorkerSocket& operator=(const WorkerSocket&) = delete;

  // The value of DDPRUN_AGENT_SOCKET.
  const std::string& name() const;
  // Returns the last report of this worker; nullopt if there is none or if it belongs to another round.
  std::optional<WorkerReport> Last(Round round, LocalRank local_rank) const;
  // The collective operation for which this worker waits, or waited last, from the memory that it shares; nullopt if it shares
  // none, or has waited for none. If several processes share memory for it, that of `process` counts, or else the newest one. Does not
  // block.
  std::optional<WorkerEvidence::Operation> Operation(LocalRank local_rank, pid_t process) const;
  // How long this worker has waited for collective operations, from the same memory; nullopt: unknown.
  std::optional<Duration> Waited(LocalRank local_rank, pid_t process) const;
  // Returns the report with the lowest step among the workers' last reports in `round`; nullopt if there are
  // none.
  std::optional<WorkerReport> Slowest(Round round) const;
  // Returns the highest step in the workers' last reports in `round`; 0 if there are none.
  int64_t FurthestStep(Round round) const;

  // Sends one snapshot request to every worker of `round`: immediately to connected workers, and to other
  // workers at their first report. With `stop`, the workers stop after the snapshot. If the receive buffer of a worker that is not registered is full, the request
  // is sent again at its next report.
  void AskForSnapshot(Round round, const std::optional<WorkerStop>& stop = {});

  // The workers of `round` are started. Workers with these local ranks keep their registration; that of all others
  // ends without a call of `unregistered`, because their processes have ended.
  void BeginRound(Round round, const std::set<LocalRank>& kept = {});
  // Sends `levels` to a registered worker: at once or, if its receive buffer is full, when it has room and no other
  // levels have replaced these. Levels that the worker has already are not sent again. No-op if the worker is not
  // registered.
  //   levels: the whole state, except for take_snapshot and the stop, which depend on AskForSnapshot.
  void SetLevels(LocalRank local_rank, const AgentRequest& levels);
  // Offers a round to a registered worker, in the same way. The offer arrives before levels that are set later, and
  // replaces levels that have not been sent. The worker may survive that round, too, if it may survive this one.
  //   REQUIRES: see Encode(RoundOffer).
  void Offer(LocalRank local_rank, const RoundOffer& offer);

 private:
  struct State;
  explicit WorkerSocket(std::shared_ptr<State> state);
  const std::shared_ptr<State> state_;  // shared with pending operations
};

}  // namespace ddprun
