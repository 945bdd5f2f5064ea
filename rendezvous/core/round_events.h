// What happens to a job's rounds (events: facts) and what is to be done about it (effects: orders), as plain
// values.
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

// What a node says of itself when it joins.
struct NodeInfo {
  NodeId id = {};
  std::string host = {};                   // for people: reports, logs, the status page
  std::string addr = {};                   // where the other nodes' workers reach this node
  int store_port = 0;                      // port of the empty worker store it holds ready for the next round
  int nproc = 1;                           // workers it will start; may differ between nodes
  std::string role = "default";            // torchrun's --role
  std::optional<int> requested_rank = {};  // --node-rank: honoured among the nodes that gave one
  bool leased = true;  // false for the agent in the coordinator's own process: it cannot be lost alone
  // A secret of the node: its holder may report that the node is gone. Empty: no such report is accepted.
  std::string gone_token = {};
  // How long it may take from the order to stop its workers to NodeReady.
  Duration stop_timeout = seconds(60);
};

// How far the workers of a node are, as they say themselves.
struct Progress {
  Round round = {};
  std::optional<int64_t> step = {};  // the least that any of them has reported; none: none has
  std::string phase = {};            // for people

  bool operator==(const Progress&) const = default;
};

// --- Events

struct NodeJoined {
  NodeInfo info;
  // Short names of all hosts of the job, where a scheduler told them. The first list that comes stands.
  std::vector<std::string> expected_hosts = {};
};
// Any message of the node arrived: its lease starts anew.
struct NodeHeard {
  NodeId node;
  std::optional<Progress> progress = {};
};
// A worker of the node ended badly in `round`; the node is stopping the others.
struct WorkersFailed {
  NodeId node;
  Round round = {};
  Failure failure = {};
};
// All workers of the node ended with exit code 0.
struct WorkersSucceeded {
  NodeId node;
  Round round = {};
};
// The node's workers of `round` are gone and it has an empty store on `store_port` for the next one.
struct NodeReady {
  NodeId node;
  Round round = {};
  int store_port = 0;
  std::vector<Failure> failures = {};  // all of the node in `round`
};
// A snapshot that the node was asked for in `round`, or another one since, is whole and durable.
struct SnapshotTaken {
  NodeId node;
  Round round = {};
  int64_t step = 0;
};
// The node is stopping its workers for a reason of its own (a signal, for example) and leaves the job when
// they are gone.
struct NodeLeaving {
  NodeId node;
  std::string reason;
};
// The node has left: none of its workers runs or will be started.
struct NodeLeft {
  NodeId node;
  std::string reason;
};
// The connection to the node broke. Its workers may run until its lease ends.
struct NodeLost {
  NodeId node;
  std::string reason;
};
// The last worker of a node whose agent has gone is dead: somebody who can know has said so.
struct NodeGone {
  NodeId node;
};
// Somebody with authority takes the node out; the job goes on without it.
struct DrainRequested {
  NodeId node;
  std::string reason;
};
// Somebody with authority ends the job: as soon as its workers are stopped, or at once. A second request ends
// it at once.
struct CloseRequested {
  Dismissal outcome = Dismissal::kStopped;
  CloseReason reason = {};
  bool at_once = false;
};
// Nothing happened but time.
struct Tick {};

using RoundEvent =
    std::variant<NodeJoined, NodeHeard, WorkersFailed, WorkersSucceeded, NodeReady, SnapshotTaken,
                 NodeLeaving, NodeLeft, NodeLost, NodeGone, DrainRequested, CloseRequested, Tick>;

// --- Effects

// The round is sealed: start your workers.
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
// Ask the workers of `round` for a snapshot, then answer with SnapshotTaken. The round may end before that.
struct TakeSnapshot {
  NodeId node;
  Round round = {};
  InterruptReason reason = {};
};
// For people at the node: what the job waits for.
struct TellWaiting {
  NodeId node;
  std::shared_ptr<const Waiting> what;  // shared, since all nodes are told the same
};
// For people at a node that was in the round: why it ended. Told when the workers of all its nodes are gone,
// before anything that follows from it.
struct TellReport {
  NodeId node;
  std::shared_ptr<const JobReport> report;  // shared, since all nodes are told the same
};
// The last word to a node; it is forgotten after this.
struct Dismiss {
  NodeId node;
  Dismissal reason = Dismissal::kRejected;
  DismissReason why = {};
};
// The node spoke of a round that is over; nothing was changed.
struct Refuse {
  NodeId node;
  absl::Status status;  // kAborted
};
using RoundEffect =
    std::variant<Assign, StopWorkers, TakeSnapshot, TellWaiting, TellReport, Dismiss, Refuse, Note>;
using RoundEffects = std::vector<RoundEffect>;

}  // namespace ddprun
