// The inputs (events) and outputs (effects) of RoundMachine, as plain values.
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
#include "base/standstill.h"
#include "base/step_times.h"
#include "base/time.h"
#include "base/worker_evidence.h"
#include "rendezvous/core/reasons.h"

namespace ddprun {

// The place of a node in its last round, from the node itself. Counts only in a job whose coordinator has changed since.
struct LastPlace {
  Round round = {};
  GroupRank rank = {};
  Rank first_rank = {};
  std::optional<int64_t> step = {};  // the furthest step that its workers reported
  Duration ran = {};                 // how long its workers ran
};

// A node's description of itself when it joins.
struct NodeInfo {
  NodeId id = {};
  std::string host = {};                   // for display in reports, logs and the status page
  std::string addr = {};                   // address at which workers of other nodes reach this node
  int store_port = 0;                      // port of the empty worker store for the next round
  int nproc = 1;                           // number of workers to start; may differ between nodes
  std::string role = "default";            // torchrun's --role
  std::optional<int> requested_rank = {};  // --node-rank; see AssignRanks
  bool hosts = false;                      // the agent in the coordinator's process
  bool leased = true;  // if false, the node and its coordinator fail together; true unless `hosts`
  // The secret that authorizes a report that the agent and its workers have exited. If empty, no such report
  // is accepted.
  std::string gone_token = {};
  // Maximum time from StopWorkers to NodeReady.
  Duration stop_timeout = seconds(60);
  std::optional<LastPlace> last = {};  // nullopt if the node has been in no round
  int coordinator_port = 0;            // of the coordinator in the node's process; 0: there is none
};

// Progress of a node's workers, as reported by the workers.
struct Progress {
  Round round = {};
  // The last reported step of the worker that is furthest behind; nullopt if no worker has reported a step.
  std::optional<int64_t> step = {};
  std::string phase = {};  // for display

  bool operator==(const Progress&) const = default;
};

// --- Events

struct NodeJoined {
  NodeInfo info;
  // Short names of all hosts of the job, if a scheduler provides them. Only the first nonempty list counts.
  std::vector<std::string> expected_hosts = {};
};
// A heartbeat from the node, with the progress of its workers. Renews the lease of the node.
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
// All workers of the node exited with 0, or, after a notice of pre-emption, by its signal.
struct WorkersSucceeded {
  NodeId node;
  Round round = {};
  bool finished = false;  // the workers have reported that all steps are done
};
// The node's workers of `round` have exited or parked, and it has an empty store on `store_port` for the next round.
struct NodeReady {
  NodeId node;
  Round round = {};
  int store_port = 0;
  std::vector<Failure> failures = {};  // all failures of the node in `round`
  std::optional<int64_t> step = {};    // the last reported step of the worker that is furthest behind
};
// A snapshot of `step` is complete and durable. Reported whether or not the machine requested a snapshot.
struct SnapshotTaken {
  NodeId node;
  Round round = {};
  int64_t step = 0;
};
// The node is stopping its workers for a reason of its own, for example a signal. When the workers have
// exited, the node leaves the job.
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
// The workers of the node have made no progress for some time, or make progress again.
struct StandstillChanged {
  NodeId node;
  Round round = {};
  NodeStandstill standstill = {};
};
// The answer to CollectEvidence.
struct EvidenceCame {
  NodeId node;
  Round round = {};
  int64_t request = 0;
  std::vector<WorkerEvidence> workers = {};
  std::vector<std::string> missing =
      {};  // what could not be collected, and what would allow it; one line each
};
// The workers of the node have done some more steps.
struct StepsTimed {
  NodeId node;
  Round round = {};
  std::vector<WorkerSteps> workers = {};
};
// An operator drains the node. The job continues without it.
struct DrainRequested {
  NodeId node;
  std::string reason;
};
// A notice of pre-emption, from the node or from an operator. A later notice may bring the end forward.
struct NoticeGiven {
  NodeId node;
  Duration left = {};                    // time until the node goes away
  std::optional<Duration> back_in = {};  // the node joins again after this time
  std::string reason = {};
};
// Ends the job. If `at_once` is set, or if this is a second request, the job ends immediately. Otherwise it
// ends as soon as its workers have stopped.
struct CloseRequested {
  Dismissal outcome = Dismissal::kStopped;
  CloseReason reason = {};
  bool at_once = false;
};
// The coordinator's process is about to exit, and another one continues the job. The round ends first.
struct HandOverRequested {
  std::string why = {};
};
// Nothing has happened, but a deadline may have passed.
struct Tick {};

using RoundEvent =
    std::variant<NodeJoined, NodeHeard, WorkersFailed, WorkersSucceeded, NodeReady, SnapshotTaken,
                 StandstillChanged, EvidenceCame, StepsTimed, NodeLeaving, NodeLeft, NodeLost, NodeGone,
                 DrainRequested, NoticeGiven, CloseRequested, HandOverRequested, Tick>;

// --- Effects

// The round is sealed: start the workers.
struct Assign {
  NodeId node;
  Assignment assignment;
  SealReason reason = {};
};
// Stop the workers of `round`, then answer with NodeReady. Sent again to a node that is stopping its workers when it
// becomes known that no round follows.
struct StopWorkers {
  NodeId node;
  Round round = {};
  EndOfRound reason = {};
  bool no_round_follows = false;  // on this node
  // Workers because of which the round stood still. They get SIGKILL at once.
  std::vector<LocalRank> hung = {};
};
// Request a snapshot from the workers of `round`, then answer with SnapshotTaken. The round may end first. With `left` and
// without `stop_within`, the node takes only note of the time that is left; its workers are not asked.
struct TakeSnapshot {
  NodeId node;
  Round round = {};
  InterruptReason reason = {};
  std::optional<Duration> stop_within =
      {};                             // the workers stop after the snapshot; the round ends after this time
  std::optional<Duration> left = {};  // this node is pre-empted, and goes away after this time
};
// Answer with EvidenceCame as soon as possible.
struct CollectEvidence {
  NodeId node;
  Round round = {};
  int64_t request = 0;
  size_t max_bytes = 0;  // of the answer
};
// A notice for the users of the node. It describes what the job is waiting for.
struct TellWaiting {
  NodeId node;
  std::shared_ptr<const Waiting> what;  // shared by all waiting nodes
};
// A report for the users of a node of the round. It describes why the round ended. Sent when the workers of
// all nodes of the round have exited, before any further order.
struct TellReport {
  NodeId node;
  std::shared_ptr<const JobReport> report;  // shared by all nodes of the round
};
// The last message to a node.
struct Dismiss {
  NodeId node;
  Dismissal reason = Dismissal::kRejected;
  DismissReason why = {};
};
// The node's message was refused: it names a stale round, the node is unknown, or the node has already
// joined. The message has no effect, except that a message with a stale round renews the lease.
struct Refuse {
  NodeId node;
  absl::Status status;  // kAborted
};
// No node has workers, and this machine begins no further round. Later effects must not be visible before others can lead
// the job.
struct HandOver {
  bool forget = false;  // all nodes have left: another start of the job begins at round 0
};
using RoundEffect = std::variant<Assign, StopWorkers, TakeSnapshot, CollectEvidence, TellWaiting, TellReport,
                                 Dismiss, Refuse, HandOver, Note>;
using RoundEffects = std::vector<RoundEffect>;

}  // namespace ddprun
