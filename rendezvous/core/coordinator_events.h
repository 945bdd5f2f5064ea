// Inputs of a coordinator (events: facts) and its outputs (effects: orders), as plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "base/job_rules.h"
#include "base/time.h"
#include "rendezvous/core/reasons.h"
#include "rendezvous/core/round_events.h"

namespace ddprun {

// Identifies one connection of one agent. Never reused.
using PeerId = uint64_t;

// --- Events

struct PeerConnected {
  PeerId peer = 0;
  std::string address = {};  // as seen from the coordinator
  bool in_process = false;   // the agent in the coordinator's own process; has no lease
};
// The first message of an agent.
struct PeerJoined {
  PeerId peer = 0;
  std::string run_id = {};
  JobRules rules = {};
  NodeInfo info = {};
  std::vector<std::string> expected_hosts = {};
  // The previous node of this agent, whose workers have exited. Empty: none.
  NodeId previous_node = {};
  std::string previous_token = {};
};
// Messages of an agent that has joined. The machine fills in `node`.
using NodeMessage =
    std::variant<NodeHeard, WorkersFailed, WorkersSucceeded, NodeReady, SnapshotTaken, NodeLeaving, NodeLeft>;
struct PeerSaid {
  PeerId peer = 0;
  NodeMessage message = {};
};
// The peer sent a message that violates the protocol.
struct PeerMisspoke {
  PeerId peer = 0;
  absl::Status why = {};
};
// The connection was closed by either side.
struct PeerDisconnected {
  PeerId peer = 0;
  std::string reason = {};
};
// Reports that the agent of a node and all its workers have exited. The reply is one Answer.
struct GoneReported {
  std::string run_id = {};
  NodeId node = {};
  std::string token = {};
};
// A request from an operator. The reply is one Answer. An empty run_id means the only job.
struct DrainNode {
  std::string run_id = {};
  std::string node = {};  // its id or its host
  std::string reason = {};
};
struct StopJob {
  std::string run_id = {};
  std::string reason = {};
};
// The coordinator's process is about to exit. All jobs end, at once or as soon as their workers have stopped.
// Agents that join later are dismissed with `reason`.
struct CoordinatorEnding {
  CloseReason reason = {};
  bool at_once = false;
};
struct CoordinatorTick {};

using CoordinatorEvent = std::variant<PeerConnected, PeerJoined, PeerSaid, PeerMisspoke, PeerDisconnected,
                                      GoneReported, DrainNode, StopJob, CoordinatorEnding, CoordinatorTick>;

// --- Effects

// The first reply to a join.
struct Welcome {
  PeerId peer = 0;
  Duration heartbeat = {};  // interval; 0: no heartbeats are needed
  std::string seen_addr = {};
};
// The reply to a heartbeat.
struct Heard {
  PeerId peer = 0;
};
// An effect of the job's RoundMachine; never a Note.
struct Order {
  PeerId peer = 0;
  RoundEffect order = {};
};
// Closes the connection once all earlier messages have been sent. No order follows.
struct HangUp {
  PeerId peer = 0;
};
// A transition of a job: logged and kept among its events.
struct JobEvent {
  std::string run_id = {};
  Note note = {};
};
// A line that is only logged.
struct LogLine {
  std::string run_id = {};  // empty: belongs to no job
  Note note = {};
};
// The job has ended. It is kept only to report its outcome to late agents and operators.
struct JobRetired {
  std::string run_id = {};
};
struct JobForgotten {
  std::string run_id = {};
};
// The reply to the request being handled.
struct Answer {
  absl::StatusOr<std::string> text;  // for people: says what happens next
};

using CoordinatorEffect =
    std::variant<Welcome, Heard, Order, HangUp, JobEvent, LogLine, JobRetired, JobForgotten, Answer>;
using CoordinatorEffects = std::vector<CoordinatorEffect>;

}  // namespace ddprun
