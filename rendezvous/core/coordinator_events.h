// The inputs (events) and outputs (effects) of CoordinatorMachine, as plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/job_rules.h"
#include "base/time.h"
#include "rendezvous/core/charter.h"
#include "rendezvous/core/reasons.h"
#include "rendezvous/core/round_events.h"

namespace ddprun {

// Identifies one connection of one agent. Never reused.
using PeerId = uint64_t;

// --- Events

struct PeerConnected {
  PeerId peer = 0;
  std::string address = {};  // the peer's address, as seen by the coordinator
  bool in_process = false;   // true for the agent in the coordinator's own process
};
// The first message of an agent.
struct PeerJoined {
  PeerId peer = 0;
  std::string run_id = {};
  JobRules rules = {};
  NodeInfo info = {};
  std::vector<std::string> expected_hosts = {};
  // The id and the gone_token of the agent's previous incarnation, whose workers have all exited. Both are
  // empty if there was none.
  NodeId previous_node = {};
  std::string previous_token = {};
  // Nodes all of whose processes have exited, with their tokens; reported by their wardens to the coordinator in the agent's
  // process.
  std::vector<std::pair<NodeId, std::string>> gone = {};
};
// Messages from an agent that has joined. The machine fills in `node`.
using NodeMessage =
    std::variant<NodeHeard, WorkersFailed, WorkersSucceeded, NodeReady, SnapshotTaken, StandstillChanged,
                 EvidenceCame, StepsTimed, NodeLeaving, NodeLeft, NoticeGiven>;
struct PeerSaid {
  PeerId peer = 0;
  NodeMessage message = {};
};
// The peer sent a message that violates the protocol.
struct PeerMisspoke {
  PeerId peer = 0;
  absl::Status why = {};
};
// Either side closed the connection.
struct PeerDisconnected {
  PeerId peer = 0;
  std::string reason = {};
};
// A warden reports that the agent and all workers of its node have exited. The effects contain one GoneNoted.
struct GoneReported {
  std::string run_id = {};
  NodeId node = {};
  std::string token = {};
};
// DrainNode, PreemptNode and StopJob are requests from an operator. The effects of each contain one Answer. For an empty
// run_id, CoordinatorMachine::FindJob describes which job is meant.
struct DrainNode {
  std::string run_id = {};
  std::string node = {};  // the id or the host of the node
  std::string reason = {};
};
struct PreemptNode {
  std::string run_id = {};
  std::string node = {};  // the id or the host of the node
  std::string reason = {};
  Duration left = {};                    // time until the node goes away
  std::optional<Duration> back_in = {};  // the node joins again after this time
};
struct StopJob {
  std::string run_id = {};
  std::string reason = {};
};
// The coordinator's process is about to exit. If `at_once` is set, all jobs end immediately. Otherwise each
// job ends as soon as its workers have stopped. Agents that join later are dismissed with `reason`.
struct CoordinatorEnding {
  CloseReason reason = {};
  bool at_once = false;
};
// This process leads the job from now on, according to the job's register.
//   REQUIRES: CoordinatorLimits::registered; it leads no job.
struct LeadBegun {
  std::string run_id = {};
  std::optional<Charter> charter = {};  // of the previous leader; nullopt: the job is new
  Takeover how = Takeover::kHandedOver;
};
// This process no longer leads its job, as after CoordinatorEnding with `at_once`. All agents are disconnected, and the job is dropped.
struct LeadLapsed {};
struct CoordinatorTick {};

using CoordinatorEvent =
    std::variant<PeerConnected, PeerJoined, PeerSaid, PeerMisspoke, PeerDisconnected, GoneReported, DrainNode,
                 PreemptNode, StopJob, CoordinatorEnding, LeadBegun, LeadLapsed, CoordinatorTick>;

// --- Effects

// The first reply to a join.
struct Welcome {
  PeerId peer = 0;
  Duration heartbeat = {};     // interval; 0 if no heartbeats are needed
  std::string seen_addr = {};  // PeerConnected::address
};
// The reply to a heartbeat.
struct Heard {
  PeerId peer = 0;
};
// An effect of the job's RoundMachine. `order` is neither a Note nor a HandOver.
struct Order {
  PeerId peer = 0;
  RoundEffect order = {};
};
// Closes the connection when all earlier messages have been sent. No further order to the peer follows.
struct HangUp {
  PeerId peer = 0;
};
// A transition of a job. It is logged and added to the events of the job.
struct JobEvent {
  std::string run_id = {};
  Note note = {};
};
// A line for the log. It is not added to the events of a job.
struct LogLine {
  std::string run_id = {};  // empty if the line belongs to no job
  Note note = {};
};
// The job has no workers, and no coordinator after this process has said so in the job's register. Later effects must not be
// visible before. Only for the job of LeadBegun.
struct JobHandedOver {
  std::string run_id = {};
  bool forget = false;  // see HandOver
};
// The job has ended. It is kept only to report its outcome to late agents and operators.
struct JobRetired {
  std::string run_id = {};
};
// The machine has removed the job.
struct JobForgotten {
  std::string run_id = {};
};
// The reply to GoneReported.
struct GoneNoted {
  absl::Status status;
};
// The reply to the request that this step handles.
struct Answer {
  absl::StatusOr<std::string> text;  // human-readable; describes what happens next
};

using CoordinatorEffect = std::variant<Welcome, Heard, Order, HangUp, JobEvent, LogLine, JobHandedOver,
                                       JobRetired, JobForgotten, GoneNoted, Answer>;
using CoordinatorEffects = std::vector<CoordinatorEffect>;

}  // namespace ddprun
