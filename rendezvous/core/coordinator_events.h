// What reaches a coordinator (events: facts) and what it does about them (effects: orders), as plain values.
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

// One connection of one agent. Never reused.
using PeerId = uint64_t;

// --- Events

struct PeerConnected {
  PeerId peer = 0;
  std::string address = {};  // as seen from the coordinator
  bool in_process = false;   // the agent of the coordinator's own process: it needs no lease
};
// The first message of an agent.
struct PeerJoined {
  PeerId peer = 0;
  std::string run_id = {};
  JobRules rules = {};
  NodeInfo info = {};
  std::vector<std::string> expected_hosts = {};
  // The agent was this node before and has ended its workers; empty: it was none.
  NodeId previous_node = {};
  std::string previous_token = {};
};
// The messages of an agent that has joined. The machine fills in `node`.
using NodeMessage =
    std::variant<NodeHeard, WorkersFailed, WorkersSucceeded, NodeReady, SnapshotTaken, NodeLeaving, NodeLeft>;
struct PeerSaid {
  PeerId peer = 0;
  NodeMessage message = {};
};
// A message that breaks the protocol.
struct PeerMisspoke {
  PeerId peer = 0;
  absl::Status why = {};
};
// The connection is closed, by either side.
struct PeerDisconnected {
  PeerId peer = 0;
  std::string reason = {};
};
// Somebody says that the agent of a node and all its workers are gone. Answered by one Answer.
struct GoneReported {
  std::string run_id = {};
  NodeId node = {};
  std::string token = {};
};
// A request of an operator; answered by one Answer. An empty run_id means the only job.
struct DrainNode {
  std::string run_id = {};
  std::string node = {};  // its id or its host
  std::string reason = {};
};
struct StopJob {
  std::string run_id = {};
  std::string reason = {};
};
// The coordinator's process is about to exit: all jobs end, as soon as their workers are stopped or at once,
// and agents that come later are told so.
struct CoordinatorEnding {
  CloseReason reason = {};
  bool at_once = false;
};
struct CoordinatorTick {};

using CoordinatorEvent = std::variant<PeerConnected, PeerJoined, PeerSaid, PeerMisspoke, PeerDisconnected,
                                      GoneReported, DrainNode, StopJob, CoordinatorEnding, CoordinatorTick>;

// --- Effects

// The first answer to a join.
struct Welcome {
  PeerId peer = 0;
  Duration heartbeat = {};  // interval; 0: none is needed
  std::string seen_addr = {};
};
// Answers a heartbeat.
struct Heard {
  PeerId peer = 0;
};
// An order of the job's RoundMachine, never a Note.
struct Order {
  PeerId peer = 0;
  RoundEffect order = {};
};
// No order follows; the connection is closed once everything before has been sent.
struct HangUp {
  PeerId peer = 0;
};
// A transition of a job, kept among its events and logged.
struct JobEvent {
  std::string run_id = {};
  Note note = {};
};
// One line for the log only.
struct LogLine {
  std::string run_id = {};  // empty: of no job
  Note note = {};
};
// The job has ended and is kept only so that late agents and operators are told how.
struct JobRetired {
  std::string run_id = {};
};
struct JobForgotten {
  std::string run_id = {};
};
// To the request that is being handled.
struct Answer {
  absl::StatusOr<std::string> text;  // for people: what happens now
};

using CoordinatorEffect =
    std::variant<Welcome, Heard, Order, HangUp, JobEvent, LogLine, JobRetired, JobForgotten, Answer>;
using CoordinatorEffects = std::vector<CoordinatorEffect>;

}  // namespace ddprun
