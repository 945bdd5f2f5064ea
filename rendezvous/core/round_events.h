// Inputs of RoundMachine (events: facts) and its outputs (effects: orders), as plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/assignment.h"
#include "base/dismissal.h"
#include "base/failure.h"
#include "base/ids.h"
#include "base/time.h"
#include "rendezvous/core/reasons.h"

namespace ddprun {

// A node's description of itself when it joins.
struct NodeInfo {
  NodeId id = {};
  std::string host = {};                   // for people: reports, logs, the status page
  std::string addr = {};                   // address at which workers of other nodes reach it
  int store_port = 0;                      // port of its empty worker store for the next round
  int nproc = 1;                           // workers to start; may differ between nodes
  std::string role = "default";            // torchrun's --role
  std::optional<int> requested_rank = {};  // --node-rank; see AssignRanks
  bool leased = true;  // false for the agent in the coordinator's process: the two end together
  // A secret that authorizes a report that the node has exited. Empty: no such report is accepted.
  std::string gone_token = {};
  // Maximum time from StopWorkers to NodeReady.
  Duration stop_timeout = seconds(60);
};

// Progress of a node's workers, as they report it.
struct Progress {
  Round round = {};
  std::optional<int64_t> step = {};  // lowest step that a worker has reported; nullopt: none has
  std::string phase = {};            // for people

  bool operator==(const Progress&) const = default;
};

// --- Events

struct NodeJoined {
  NodeInfo info;
  // Short names of all hosts of the job, if a scheduler provides them. Only the first nonempty list counts.
  std::vector<std::string> expected_hosts = {};
};
// A heartbeat from the node, with the progress of its workers. Renews its lease.
struct NodeHeard {
  NodeId node;
  std::optional<Progress> progress = {};
};
// A worker of the node failed in `round`. The node is stopping its other workers.
struct WorkersFailed {
  NodeId node;
  Round round = {};
  Failure failure = {};
};
// All workers of the node exited with 0.
struct WorkersSucceeded {
  NodeId node;
  Round round = {};
};
// The node's workers of `round` have exited, and it has an empty store on `store_port` for the next round.
struct NodeReady {
  NodeId node;
  Round round = {};
  int store_port = 0;
  std::vector<Failure> failures = {};  // all failures of the node in `round`
};
// A snapshot is complete and durable: the one requested in `round`, or a later one.
struct SnapshotTaken {
  NodeId node;
  Round round = {};
  int64_t step = 0;
};
// The node is stopping its workers for a reason of its own (a signal, for example). It leaves the job when
// they have exited.
struct NodeLeaving {
  NodeId node;
  std::string reason;
};
// The node has left. None of its workers is running, and it will not start any.
struct NodeLeft {
  NodeId node;
  std::string reason;
};
// The connection to the node broke. Its workers may run until its lease ends.
struct NodeLost {
  NodeId node;
  std::string reason;
};
// The agent of the node and all its workers have exited, according to an authorized reporter.
struct NodeGone {
  NodeId node;
};
// An operator takes the node out; the job continues without it.
struct DrainRequested {
  NodeId node;
  std::string reason;
};
// Ends the job: at once, or as soon as its workers have stopped. A second request ends it at once.
struct CloseRequested {
  Dismissal outcome = Dismissal::kStopped;
  CloseReason reason = {};
  bool at_once = false;
};
// Time has passed.
struct Tick {};

using RoundEvent =
    std::variant<NodeJoined, NodeHeard, WorkersFailed, WorkersSucceeded, NodeReady, SnapshotTaken,
                 NodeLeaving, NodeLeft, NodeLost, NodeGone, DrainRequested, CloseRequested, Tick>;

// --- Effects

// The round is sealed: start the workers.
struct Assign {
  NodeId node;
  Assignment assignment;
  SealReason reason = {};
};
// Stop the workers of `round`, then answer with NodeReady.
struct StopWorkers {
  NodeId node;
  Round round = {};
  EndOfRound reason = {};
};
// Request a snapshot from the workers of `round`, then answer with SnapshotTaken. The round may end first.
struct TakeSnapshot {
  NodeId node;
  Round round = {};
  InterruptReason reason = {};
};
// A notice for people at the node: what the job is waiting for.
struct TellWaiting {
  NodeId node;
  std::shared_ptr<const Waiting> what;  // shared by all waiting nodes
};
// A report for people at a node of the round: why the round ended. Sent when the workers of all its nodes
// have exited, before any further order.
struct TellReport {
  NodeId node;
  std::shared_ptr<const JobReport> report;  // shared by all nodes of the round
};
// The last message to a node, which is then forgotten.
struct Dismiss {
  NodeId node;
  Dismissal reason = Dismissal::kRejected;
  DismissReason why = {};
};
// The node's message was refused (a stale round, an unknown node, a second join). Nothing changed.
struct Refuse {
  NodeId node;
  absl::Status status;  // kAborted
};
using RoundEffect =
    std::variant<Assign, StopWorkers, TakeSnapshot, TellWaiting, TellReport, Dismiss, Refuse, Note>;
using RoundEffects = std::vector<RoundEffect>;

}  // namespace ddprun
