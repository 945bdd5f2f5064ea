// Reasons for decisions in a job, as values. RoundMachine and CoordinatorMachine use the types; round_text.h
// converts the values to text. The strings in the reasons come from users and peers and affect no decision.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/failure.h"
#include "base/ids.h"
#include "base/job_rules.h"
#include "base/time.h"

namespace ddprun {

// The names of a node for display.
struct NodeName {
  NodeId id = {};
  std::string host = {};

  bool operator==(const NodeName&) const = default;
};

// --- Why a node is missing

struct Left {
  std::string why = {};  // given by the node
  bool operator==(const Left&) const = default;
};
struct ConnectionLost {
  std::string why = {};
  bool operator==(const ConnectionLost&) const = default;
};
// The agent and all its workers have exited. The node's warden or its new agent reported this.
struct AgentGone {
  bool operator==(const AgentGone&) const = default;
};
// A new agent joined from the same host with the same node rank.
struct Replaced {
  NodeId by = {};
  bool operator==(const Replaced&) const = default;
};
struct LeaseExpired {
  Duration lease = {};
  Duration ago = {};
  bool operator==(const LeaseExpired&) const = default;
};
struct JoinTimedOut {
  Duration waited = {};
  bool operator==(const JoinTimedOut&) const = default;
};
struct StopTimedOut {
  Round round = {};
  bool operator==(const StopTimedOut&) const = default;
};
// The node was pre-empted, and has said that it returns.
struct PreemptedForNow {
  Duration back_in = {};  // from the time when it was let go
  bool operator==(const PreemptedForNow&) const = default;
};
// Too few nodes are left, and no other node can join.
struct TooFewLeft {
  int nodes = 0;
  int min_nodes = 0;
  bool operator==(const TooFewLeft&) const = default;
};
// The job has a new coordinator, which the node has not joined yet.
struct NotYetBack {
  bool operator==(const NotYetBack&) const = default;
};
using MissedReason = std::variant<Left, ConnectionLost, AgentGone, Replaced, LeaseExpired, JoinTimedOut,
                                  StopTimedOut, PreemptedForNow, TooFewLeft, NotYetBack>;
struct NodeMissed {
  NodeName node = {};
  MissedReason why = {};
};

// --- Why the job ends

// Requested by an operator or by the coordinator's process.
struct StopWanted {
  std::string why = {};
};
// The agent that hosts the coordinator is leaving.
struct HostLeaving {
  std::string why = {};
};
struct NodePreempted {
  NodeName node = {};
  std::string why = {};  // given by the node or by an operator
};
// The node that hosts the coordinator is pre-empted.
struct HostPreempted {
  NodePreempted why = {};
};
using CloseReason = std::variant<StopWanted, HostLeaving, HostPreempted>;

// --- Why a round ends

struct NodeStopping {
  NodeName node = {};
  std::string why = {};  // given by the node
};
struct FailureReported {
  std::string cause = {};  // given by the node
};
// An operator drains the node.
struct TakenOut {
  NodeName node = {};
  std::string why = {};
};
// The job goes on under another coordinator.
struct CoordinatorMoves {
  std::string why = {};
};
struct NewcomersWait {
  int nodes = 0;
};
// Reasons to end a healthy round.
using InterruptReason = std::variant<TakenOut, NewcomersWait, NodePreempted>;
// After a notice of pre-emption, workers have exited or parked without a snapshot that the job has heard of.
struct StoppedAfterNotice {
  NodePreempted why = {};
};
struct SnapshotCame {
  InterruptReason why = {};
  int64_t step = 0;
};
struct NoSnapshotCame {
  InterruptReason why = {};
  Duration timeout = {};
};
using EndOfRound = std::variant<FailureReported, NodeMissed, NodeStopping, InterruptReason, SnapshotCame,
                                NoSnapshotCame, StoppedAfterNotice, CoordinatorMoves, CloseReason>;

// --- Why a round is sealed now

// The maximum, or all hosts that a scheduler has named.
struct AllJoined {
  int nodes = 0;
};
struct LastCallOver {
  int nodes = 0;
  int max_nodes = 0;
};
struct PauseOver {};
struct MembersStopped {};
// Under a new coordinator: the members of the last round, or those that came in time.
struct MembersCameBack {
  int nodes = 0;
};
using SealReason = std::variant<AllJoined, LastCallOver, PauseOver, MembersStopped, MembersCameBack>;

// --- What the end of a round costs, and why

struct NothingFailed {};
struct FollowedFromLoss {};
struct FailedAfterNotice {};  // of pre-emption
struct WorkerStuck {};
struct NoRestartAllowed {};
struct RestartsUsedUp {
  int max = 0;
};
struct FailedTooEarly {
  Duration uptime = {};
  Duration min_uptime = {};
};
struct NoProgress {
  int restarts = 0;  // number of consecutive restarts without progress
  int64_t step = 0;
  int limit = 0;
};
struct RestartGranted {
  int restart = 0;
  int max = 0;
};
using CostReason = std::variant<NothingFailed, FollowedFromLoss, FailedAfterNotice, WorkerStuck,
                                NoRestartAllowed, RestartsUsedUp, FailedTooEarly, NoProgress, RestartGranted>;

// --- How the job has ended

struct AllSucceeded {};
struct FailedForGood {
  std::string cause = {};
  CostReason why = {};
};
struct LossesInARow {
  int rounds = 0;
  std::optional<EndOfRound> last = {};  // nullopt: the coordinator was lost
};
// According to the charter of an earlier coordinator.
struct EndedBefore {
  std::string why = {};  // empty on success
};
using EndOfJob = std::variant<AllSucceeded, FailedForGood, LossesInARow, CloseReason, EndedBefore>;

// --- Why a node is dismissed

struct JobIsClosed {
  EndOfJob end = {};
};
struct JobIsClosing {
  CloseReason why = {};
};
struct RankTooHigh {
  int rank = 0;
  std::string host = {};
  int max_nodes = 0;
};
struct RankTaken {
  int rank = 0;
  std::string host = {};
  NodeName by = {};
};
struct TooFewJoined {
  int nodes = 0;
  int min_nodes = 0;
  Duration within = {};
};
struct NoJoinCame {
  std::string address = {};
  Duration within = {};
};
// The process does not lead the job.
struct NotLed {
  std::string run_id = {};
};
// The node's options or messages are invalid.
struct Unfit {
  std::string why = {};
};
using DismissReason =
    std::variant<EndOfJob, JobIsClosed, JobIsClosing, RankTooHigh, RankTaken, TooFewJoined, TooFewLeft,
                 NodeMissed, TakenOut, NodePreempted, CoordinatorMoves, NoJoinCame, NotLed, Unfit>;

// --- Notices to waiting nodes

// A node that is missing from the job.
struct AbsentNode {
  std::string host;
  std::optional<MissedReason> why = {};  // nullopt if the node has never joined
  std::optional<TimePoint> since = {};   // when the node was lost; nullopt if it has never joined

  bool operator==(const AbsentNode&) const = default;
};

struct WaitsForNodes {
  JobRules rules = {};  // min_nodes is the number of nodes that the next round needs
  int joined = 0;
  std::vector<AbsentNode> absent = {};
  TimePoint since = {};
  std::optional<TimePoint> last_call_end = {};
  TimePoint now = {};
};
struct WaitsAsSpare {
  JobRules rules = {};
  int running = 0;
  int waiting = 0;
};
struct WaitsForSnapshot {
  Duration left = {};
};
struct WaitsForDrain {
  int nodes = 0;
  Round round = {};
};
struct WaitsForNothing {};  // the job is closed
using Waiting = std::variant<WaitsForNodes, WaitsAsSpare, WaitsForSnapshot, WaitsForDrain, WaitsForNothing>;

// --- Transitions of a job. They are logged and added to the events of the job.

namespace note {

struct NodeJoined {
  NodeName node = {};
  int nproc = 0;
};
struct WorkersFailed {
  std::string cause = {};
};
struct SnapshotTaken {
  NodeName node = {};
  int64_t step = 0;
};
struct NodeLeaving {
  NodeStopping why = {};
};
struct DrainRequested {
  TakenOut why = {};
};
struct NodeDrained {
  TakenOut why = {};
};
struct Notice {  // of pre-emption
  NodePreempted why = {};
  Duration left = {};
  std::optional<Duration> back_in = {};
};
struct NodePreempted {
  ddprun::NodePreempted why = {};
};
struct JobClosing {
  CloseReason why = {};
};
// The round has made no progress for `idle`.
struct StandsStill {
  Round round = {};
  Duration idle = {};
  std::string finding = {};  // one line; may be empty
  bool ends = false;         // it is hung, and ends
};
struct MovesAgain {
  Round round = {};
};
// Ranks of a host take longer than the others for their own part of a step; see stragglers.h.
struct Straggles {
  std::string host = {};
  std::vector<Rank> ranks = {};  // in ascending order
  Duration own = {};             // of the slowest of them
  Duration step = {};
  Duration median = {};  // of the own times of all ranks
};
struct HostExcluded {
  std::string host = {};
  int failures = 0;
};
struct SnapshotAsked {
  Round round = {};
  InterruptReason why = {};
};
struct RoundSealed {
  Round round = {};
  int nodes = 0;
  int workers = 0;
  SealReason why = {};
};
struct RoundEnded {
  Round round = {};
  EndOfRound why = {};
};
struct RoundReported {
  std::shared_ptr<const JobReport> report;
};
struct Paused {
  int rounds = 0;  // number of consecutive rounds that lost nodes and made no progress
  Duration pause = {};
};
struct WaitingForNodes {
  Waiting what = {};
};
// A new coordinator continues the job.
struct Resumed {
  std::optional<Round> round = {};  // the last one
  int restarts = 0;
  int members = 0;  // of that round, which are waited for
};
struct JobClosed {
  EndOfJob end = {};
};
struct HandingOver {
  CoordinatorMoves why = {};
};
struct HandedOver {
  int nodes = 0;  // that are told
};

// Events of the coordinator.
struct JobDeserted {};
struct JobForgotten {
  enum class Why { kNoNodes, kNoneCameBack, kOtherOptions } why = Why::kNoNodes;
};
struct AgentRefused {
  DismissReason why = {};
};
struct BadMessage {
  NodeId node = {};
  std::string why = {};
};

}  // namespace note

using Note =
    std::variant<note::NodeJoined, note::WorkersFailed, note::SnapshotTaken, note::NodeLeaving, NodeMissed,
                 note::DrainRequested, note::NodeDrained, note::Notice, note::NodePreempted, note::JobClosing,
                 note::StandsStill, note::MovesAgain, note::Straggles, note::HostExcluded,
                 note::SnapshotAsked, note::RoundSealed, note::RoundEnded, note::RoundReported, note::Paused,
                 note::WaitingForNodes, note::Resumed, note::JobClosed, note::HandingOver, note::HandedOver,
                 note::JobDeserted, note::JobForgotten, note::AgentRefused, note::BadMessage>;

}  // namespace ddprun
