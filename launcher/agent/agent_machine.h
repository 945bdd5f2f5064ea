// The agent's state machine. It decides when a node's workers start, when and how they are stopped, when
// the node searches for its coordinator again, and when the agent ends.
//
// clang-format off
//                 Start               a worker failed, Stop, Dismiss, a signal,
//   +------+ ----------------> +---------+ cut off, or all exited with 0    +----------+
//   | Idle |                   | Running | -------------------------------> | Stopping |
//   +------+ <------------+    +---------+                                  +----------+
//     |  ^                |         ^                                        |   |   |
//     |  |                +--- workers gone; Ready or Succeeded is sent -----+   |   |
//     |  |                          | Start                                  |   |   |
//     |  |                     +--------+   workers gone or parked;          |   |   |
//     |  |                     | Parked | <- Ready is sent ------------------+   |   |
//     |  |                     +--------+ -- Dismiss, a signal, cut off --> Stopping |
//     |  | welcomed  +---------+       workers gone; cut off                     |   |
//     |  +---------- | Seeking | <-----------------------------------------------+   |
//     |              +---------+                                                     |
//     | cut off       ^   |   not found, a signal, Dismiss                           |
//     +---------------+   +------------------------------> +----------+              |
//     |                                                    | Finished | <------------+
//     +--- Dismiss, a signal ----------------------------> +----------+  workers gone; agent is ending
// clang-format on
//
// A node is cut off if it was evicted, if it has lost its connection to the coordinator, if the coordinator moves to another
// process, or if its fence has fired. The other nodes continue without the node that is cut off. That node rejoins as a new node; if it
// cannot rejoin, its agent ends. In Stopping, the workers receive a signal and have a grace period; then the
// workers and all processes that they started receive SIGKILL. If other nodes may have started the next
// round, SIGKILL is sent immediately. AgentBroken causes the same transitions as a signal.
//
// A worker that has asked to survive gets no signal when its round ends: it is asked to park, and has the same grace
// period for it. Workers that have parked live on, and take part in the next round of this node without a start. They
// are stopped like other workers if no round follows for them: the node is cut off or dismissed, its agent ends, or a
// round has started without the node.
//
// A notice of pre-emption says that this node goes away at its end. The coordinator decides what happens then; the workers
// of all nodes are asked to stop. The end of the notice bounds every grace period, and if the coordinator has not stopped
// the round in time, the machine stops its workers by itself. A node with a notice never joins again.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/assignment.h"
#include "base/dismissal.h"
#include "base/exit_info.h"
#include "base/ids.h"
#include "base/time.h"
#include "base/worker_message.h"
#include "launcher/cli/exit_code.h"

namespace ddprun {

// A coordinator that is there is found within a lease and this time.
inline constexpr Duration kSeekBeyondLease = seconds(1);

struct AgentPolicy {
  int nproc = 1;  // number of local workers, >= 1
  // Time between the first signal to the workers and SIGKILL, unless SIGKILL is sent immediately.
  Duration grace = seconds(30);
  // Time after which a silent node counts as lost.
  Duration lease = seconds(5);
  // How long a node that is cut off searches for its coordinator.
  Duration seek_limit = seconds(6);
  ExitCodes exit_codes = ExitCodes::kTorchrun;
  std::set<int> notice_signals = {};  // of --preempt-signal
};

// --- Events ---

struct RoundStarted {
  Assignment assignment;
  std::string reason;
};
struct RoundStopped {
  Round round;
  std::string reason;
  bool no_round_follows = false;     // for this node: the job closes, or the node is drained
  std::vector<LocalRank> hung = {};  // they get SIGKILL at once
};
// The coordinator's last message to this node.
struct Dismissed {
  Dismissal reason = {};
  std::string message = {};  // for users
};
// The connection to the coordinator broke.
struct CoordinatorLost {
  std::string reason;
};
// The fence has fired: the node's lease has expired or is about to expire. The warden kills the workers;
// WorkerEnded follows for each of them.
struct Fenced {
  bool by_lead = false;  // the coordinator has answered, but its lead of the job was not renewed
};
// The coordinator has accepted this node: result of the first join, and of Rejoin.
struct Welcomed {};
// Result of Rejoin: the coordinator was not found.
struct RejoinFailed {
  std::string reason;
};
struct WorkerEnded {
  LocalRank local_rank;
  ExitInfo exit;
};
// A worker asks to survive the end of its round, or can no longer survive, because its connection to the agent was closed.
struct WorkerSurvives {
  LocalRank local_rank;
  bool asks = true;
};
// A worker has ended all access to the memory and the connections of `round`, and waits for the next round.
struct WorkerParked {
  LocalRank local_rank;
  Round round;
  std::string why = {};  // why the worker's round ended, for people
};
// The coordinator requests a snapshot from the workers of `round`; with `left` and without `stop_within`, it only says how
// much time is left.
struct SnapshotWanted {
  Round round;
  std::string reason = {};
  int64_t from_step = 0;  // the furthest step that a worker has reported; older snapshots do not suffice
  std::optional<Duration> stop_within =
      {};                             // the workers stop after the snapshot; the round ends after this time
  std::optional<Duration> left = {};  // this node is pre-empted, and goes away after this time
};
// The newest snapshot that a worker has reported as complete. The same snapshot may be reported repeatedly.
struct SnapshotReported {
  Round round;
  int64_t step = 0;
};
// KillWorkers is complete: the workers and all processes that they started have exited, except those to spare and the
// unkillable ones.
struct WorkersGone {
  // One line for each process or thread that has not exited after SIGKILL. Such a process may still hold
  // devices or files.
  std::vector<std::string> unkillable = {};
};
struct SignalReceived {
  int signo = 0;
};
// A notice of pre-emption for this node. A later one can only bring the end forward.
struct NoticeReceived {
  Duration left{};          // time until the node goes away
  std::string reason = {};  // for people
};
// The agent itself cannot continue.
struct AgentBroken {
  absl::Status status;
  EndReason reason = EndReason::kBroken;
};
struct AgentTick {};

using AgentEvent =
    std::variant<RoundStarted, RoundStopped, Dismissed, CoordinatorLost, Fenced, Welcomed, RejoinFailed,
                 WorkerEnded, WorkerSurvives, WorkerParked, SnapshotWanted, SnapshotReported, WorkersGone,
                 SignalReceived, NoticeReceived, AgentBroken, AgentTick>;

// --- Effects ---

// Start the workers of a round. The workers in `keep` are parked; they get an offer of their place in the round instead.
struct StartWorkers {
  Assignment assignment;
  std::set<LocalRank> keep = {};
};
struct SignalWorkers {
  int signo = SIGTERM;
  std::set<LocalRank> spare = {};  // get no signal
};
// Send SIGKILL to the workers and all their descendants, except to the workers in `spare` and their descendants.
// WorkersGone follows.
struct KillWorkers {
  std::set<LocalRank> spare = {};
};
// Tell these workers, which have asked to survive, the state of `round`, in which they are. Replaces what they were told
// before.
struct TellSurvivors {
  std::set<LocalRank> who;
  Round round;
  bool round_over = false;        // they must park
  bool no_round_follows = false;  // they must exit
};
// Ask each worker for a snapshot, over the workers' socket. With `stop`, tell it also to workers that do not use the socket.
struct AskForSnapshot {
  Round round;
  std::optional<WorkerStop> stop = {};
};
// Report the failure of this worker to the coordinator; AgentDriver adds the details.
struct SendWorkersFailed {
  Round round;
  LocalRank local_rank;
  std::optional<std::string> parked =
      {};  // set: the worker has not ended, but has ended its round, for this reason
};
struct SendWorkersSucceeded {
  Round round;
  bool by_signal = false;  // a worker has ended by a signal of a notice
};
// Open an empty store for the next round and report that the node is ready, with all failures of `round`.
struct SendReady {
  Round round;
};
struct SendSnapshotTaken {
  Round round;
  int64_t step = 0;
};
struct SendPreempted {
  Duration left{};
  std::string reason = {};
};
// Report that the node leaves the job. If its workers are still running, the effect is issued again after
// they have exited, with workers_gone set.
struct SendLeave {
  std::string reason;
  bool workers_gone = false;
};
// Close the connection, search for the coordinator for at most `limit`, and join as a new node. The result is
// Welcomed, RejoinFailed, Dismissed if the coordinator rejects the node, or CoordinatorLost if the new
// connection breaks.
struct Rejoin {
  Duration limit{};
};
// Show the failures of this node in `round` to users; AgentWorld provides the report.
struct ReportFailures {
  Round round;
};
// Log a line for users.
struct Tell {
  std::string text;
};
// End the agent. Issued once, as the last effect.
struct Finish {
  EndReason reason = {};
  int exit_code = 0;
  std::string why = {};  // one sentence; empty if the job succeeded
};

using AgentEffect = std::variant<StartWorkers, SignalWorkers, KillWorkers, TellSurvivors, AskForSnapshot,
                                 SendWorkersFailed, SendWorkersSucceeded, SendReady, SendSnapshotTaken,
                                 SendPreempted, SendLeave, Rejoin, ReportFailures, Tell, Finish>;
using AgentEffects = std::vector<AgentEffect>;

// Pure: equal (state, event, now) give equal effects.
class AgentMachine {
 public:
  enum class State { kIdle, kRunning, kStopping, kParked, kSeeking, kFinished };

  explicit AgentMachine(AgentPolicy policy);

  [[nodiscard]] AgentEffects Step(const AgentEvent& event, TimePoint now);  // REQUIRES: now never decreases
  // The latest time at which to call Step(AgentTick{}); nullopt if no deadline is pending.
  std::optional<TimePoint> NextDeadline() const;

  State state() const { return state_; }
  // The round of the running or stopping workers. In other states, the round of the last workers; -1 before
  // the first round.
  Round round() const { return assignment_.round; }
  // The number of workers that have not ended, parked ones included.
  int alive() const { return static_cast<int>(alive_.size()); }

 private:
  struct Lost {
    std::string why;      // why the node is cut off
    EndReason otherwise;  // the reason with which the agent ends if the node cannot rejoin
  };

  void On(const RoundStarted& e);
  void On(const RoundStopped& e);
  void On(const Dismissed& e);
  void On(const CoordinatorLost& e);
  void On(const Fenced& e);
  void On(const Welcomed& e);
  void On(const RejoinFailed& e);
  void On(const WorkerEnded& e);
  void On(const WorkerSurvives& e);
  void On(const WorkerParked& e);
  void On(const SnapshotWanted& e);
  void On(const SnapshotReported& e);
  void On(const WorkersGone& e);
  void On(const SignalReceived& e);
  void On(const NoticeReceived& e);
  void On(const AgentBroken& e);
  void On(const AgentTick& e);

  // A notice of pre-emption for this node.
  struct Notice {
    TimePoint stop_at;  // when the machine stops its workers, if the coordinator has not
    TimePoint last;     // when no worker may be left
    TimePoint end;      // when the node goes away
    std::string reason = {};
  };

  bool InRound(Round round) const {
    return state_ == State::kRunning && round == assignment_.round && !end_ && !lost_;
  }
  // Takes a notice that ends after `left`. Returns false if an earlier notice ends before.
  bool TakeNotice(Duration left, const std::string& reason);
  void TellOfNotice();
  // The time at which this node, which has a notice, leaves by itself; nullopt if it is stopping or ending, or has no notice.
  std::optional<TimePoint> NoticeAlarm() const;
  // Whether workers that exit in this round have been told to, so that an exit by a signal of the notice is not a failure.
  bool AskedToStop() const { return notice_.has_value() || stop_asked_.has_value(); }
  // Begins the grace period. A notice bounds it.
  void StartGrace();
  // Returns whether workers may survive the end of their round.
  bool MaySurvive() const { return !end_ && !lost_ && !no_round_follows_; }
  // The workers that KillWorkers spares: those that have parked, if workers may survive.
  std::set<LocalRank> Spared() const { return MaySurvive() ? parked_ : std::set<LocalRank>(); }
  // Asks the workers that may survive to park, and signals the others. end_, lost_ and succeeded_ determine the state
  // after Stopping.
  void Stop(int signo);
  // In Stopping or Parked: workers no longer survive. Signals those that Stop has not signalled, and gives them the grace
  // period.
  void EndSurvival(int signo);
  // In Stopping: kills what is left if all workers have ended or parked, and moves on if nothing is left. Call it after
  // each change.
  void Settle();
  // Kills the workers and all processes that they started, except those to spare. Has no effect during an earlier sweep;
  // Settle repeats it if other workers are to be spared then.
  void Sweep();
  // In Stopping: kills the workers that are left, without waiting for the end of the grace period.
  void KillNow();
  // Moves on from Stopping; only the workers in Spared() are left.
  void Stopped();
  // Call when the job continues without this node. Later calls do not replace the first reason. If `at_once`
  // is true, kills the workers without a grace period, because other nodes may have started the next round.
  //   REQUIRES: the state is not Seeking; it is not Idle if end_ is set.
  void CutOff(Lost lost, bool at_once);
  void Seek();
  // Schedules another attempt after a connection broke or the node was evicted. Each pause is longer than the
  // previous one, up to a maximum. The search fails if the next attempt would not start before seek_end_.
  void SeekAgain(const std::string& why);
  // Ends the agent after its workers have exited. Later calls do not replace the first reason.
  void FinishWith(EndReason reason, int signo, std::string why);
  // Reports to the coordinator that this node leaves although it was not dismissed.
  void Leave(std::string reason);
  void Finished();
  void Say(std::string text);

  const AgentPolicy policy_;
  State state_ = State::kIdle;
  Assignment assignment_;
  std::set<LocalRank> alive_;       // workers that have not ended
  std::set<LocalRank> asking_;      // those of alive_ that have asked to survive
  std::set<LocalRank> parked_;      // those of asking_ that have parked for the current round
  std::set<LocalRank> unsignaled_;  // in Stopping and Parked: those of alive_ that Stop has not signalled
  bool stuck_ = false;              // a worker of this round is stuck, which ends the job
  bool failed_ = false;             // a worker of this round failed before it was stopped
  bool succeeded_ = false;          // all workers of this round exited with 0
  bool no_round_follows_ = false;   // the coordinator starts no further round on this node
  bool killing_ = false;            // waiting for WorkersGone after KillWorkers
  bool kill_now_ = false;           // in Stopping: the grace period is over
  std::optional<std::set<LocalRank>> swept_;  // set: what the last KillWorkers of this stop has spared
  std::optional<RoundStarted> held_;          // in Parked: starts when KillWorkers is complete
  bool signaled_ = false;                     // the agent has received a signal
  std::optional<EndReason> end_;              // set: the agent ends after its workers have exited
  std::string end_why_;                       // set with end_
  std::optional<std::string> leaving_;        // set: reason of the SendLeave that follows WorkersGone
  std::optional<Lost> lost_;                  // set: the node is cut off
  TimePoint grace_start_;                     // in Stopping: when the workers were signalled
  std::optional<TimePoint> grace_end_;        // in Stopping: when SIGKILL is due

  std::optional<Notice> notice_;
  bool joined_ = false;                  // the coordinator has accepted this node
  std::optional<TimePoint> stop_asked_;  // set: the workers of this round are asked to stop by this time
  bool by_signal_ = false;               // a worker of this round has ended by a signal of a notice

  int64_t snapshot_step_ = -1;          // step of the newest snapshot of this round; -1: none
  std::optional<int64_t> wanted_from_;  // set: a snapshot of at least this step is requested

  std::optional<TimePoint> seek_at_;      // in Seeking: time of the next attempt; nullopt during an attempt
  TimePoint seek_end_;                    // in Seeking: deadline of the search
  Duration pause_{};                      // the most recent pause before an attempt
  std::optional<TimePoint> rejoined_at_;  // time of the last rejoin

  // Valid only during Step.
  TimePoint now_;
  AgentEffects effects_;
};

}  // namespace ddprun
