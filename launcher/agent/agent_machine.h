// One node's part in a job: when its workers start, when they are stopped and how, when the node looks for
// its coordinator again, and when the agent ends.
//
// clang-format off
//                 Start               a worker failed, Stop, Dismiss, a signal,
//   +------+ ----------------> +---------+ cut off, or all ended with 0     +----------+
//   | Idle |                   | Running | -------------------------------> | Stopping |
//   +------+ <------------+    +---------+                                  +----------+
//     |  ^                |                                                  |   |   |
//     |  |                +--- nothing left; Ready or Succeeded is sent -----+   |   |
//     |  |                                                                       |   |
//     |  | welcomed  +---------+       nothing left; cut off                     |   |
//     |  +---------- | Seeking | <-----------------------------------------------+   |
//     |              +---------+                                                     |
//     | cut off       ^   |   not found, a signal, Dismiss                           |
//     +---------------+   +------------------------------> +----------+              |
//     |                                                    | Finished | <------------+
//     +--- Dismiss, a signal ----------------------------> +----------+  nothing left; to end
// clang-format on
//
// Cut off is a node that was evicted, that has lost its connection to the coordinator, or whose fence has
// fallen: the others go on without it, so it joins again as a new node, or ends. Stopping is a signal, a
// grace period, SIGKILL, and then a sweep over everything the workers started; without the first two where
// the next round may have begun elsewhere.
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
#include "launcher/cli/exit_code.h"

namespace ddprun {

struct AgentPolicy {
  int nproc = 1;  // workers to be started here, >= 1
  // Between the first signal and SIGKILL, whatever the reason.
  Duration grace = seconds(30);
  // How long a silent node counts as alive. One that is cut off looks for its coordinator a second longer.
  Duration lease = seconds(5);
  ExitCodes exit_codes = ExitCodes::kTorchrun;
};

// Why an agent that the coordinator dismisses ends.
EndReason EndReasonOf(Dismissal dismissal);

// --- Events ---

struct RoundStarted {
  Assignment assignment;
  std::string reason;
};
struct RoundStopped {
  Round round;
  std::string reason;
};
// The coordinator's last word.
struct Dismissed {
  Dismissal reason = {};
  std::string message = {};  // for people
};
// The connection to the coordinator broke.
struct CoordinatorLost {
  std::string reason;
};
// The node's lease may be over: the warden kills the workers, their ends follow.
struct Fenced {};
// The answers to Rejoin: the coordinator has welcomed this node as a new one, or could not be found.
struct Rejoined {};
struct RejoinFailed {
  std::string reason;
};
struct WorkerEnded {
  LocalRank local_rank;
  ExitInfo exit;
};
// The coordinator wants a snapshot of the workers of `round`.
struct SnapshotWanted {
  Round round;
  std::string reason = {};
  int64_t from_step = 0;  // the furthest that any worker has reported: an older one would lose steps
};
// The newest snapshot that a worker has said is whole; said again and again.
struct SnapshotReported {
  Round round;
  int64_t step = 0;
};
// Nothing that the workers started is alive any more, or cannot be killed; that is said elsewhere.
struct WorkersGone {
  // Processes, or threads, that not even SIGKILL has ended, one line for each: they may hold a device or a file.
  std::vector<std::string> unkillable = {};
};
struct SignalReceived {
  int signo = 0;
};
// The agent itself cannot go on.
struct AgentBroken {
  absl::Status status;
  EndReason reason = EndReason::kBroken;
};
struct AgentTick {};

using AgentEvent = std::variant<RoundStarted, RoundStopped, Dismissed, CoordinatorLost, Fenced, Rejoined,
                                RejoinFailed, WorkerEnded, SnapshotWanted, SnapshotReported, WorkersGone,
                                SignalReceived, AgentBroken, AgentTick>;

// --- Effects ---

struct StartWorkers {
  Assignment assignment;
};
struct SignalWorkers {
  int signo = SIGTERM;
};
// SIGKILL to all that the workers are and started; answered by WorkersGone.
struct KillWorkers {};
// Over the workers' socket, to each of them.
struct AskForSnapshot {
  Round round;
};
// The shell knows how this worker failed.
struct SendWorkersFailed {
  Round round;
  LocalRank local_rank;
};
struct SendWorkersSucceeded {
  Round round;
};
// Open an empty store for the next round and say that the node is ready for it, with all failures of `round`.
struct SendReady {
  Round round;
};
struct SendSnapshotTaken {
  Round round;
  int64_t step = 0;
};
// The node leaves the job; sent again, with workers_gone, once it has no workers.
struct SendLeave {
  std::string reason;
  bool workers_gone = false;
};
// Hang up, look for the coordinator for `limit` at most, and join as a new node. Answered by Rejoined,
// RejoinFailed, or CoordinatorLost when a connection was made and broke.
struct Rejoin {
  Duration limit{};
};
// Show the failure report of the round, from what the shell has kept.
struct ReportFailures {
  Round round;
};
struct Tell {
  std::string text;  // one line for people
};
// The agent ends. Given once, last.
struct Finish {
  EndReason reason = {};
  int exit_code = 0;
  std::string why = {};  // one sentence; empty: the job succeeded
};

using AgentEffect = std::variant<StartWorkers, SignalWorkers, KillWorkers, AskForSnapshot, SendWorkersFailed,
                                 SendWorkersSucceeded, SendReady, SendSnapshotTaken, SendLeave, Rejoin,
                                 ReportFailures, Tell, Finish>;
using AgentEffects = std::vector<AgentEffect>;

// Pure: equal (state, event, now) give equal effects.
class AgentMachine {
 public:
  enum class State { kIdle, kRunning, kStopping, kSeeking, kFinished };

  explicit AgentMachine(AgentPolicy policy);

  [[nodiscard]] AgentEffects Step(const AgentEvent& event, TimePoint now);  // REQUIRES: now never decreases
  // Step(AgentTick{}) at the latest then; none = nothing pending.
  std::optional<TimePoint> NextDeadline() const { return state_ == State::kSeeking ? seek_at_ : grace_end_; }

  State state() const { return state_; }
  // The round of the running or stopping workers; in other states the last one, -1 before the first.
  Round round() const { return assignment_.round; }
  int alive() const { return static_cast<int>(alive_.size()); }

 private:
  // Why the node is cut off, and why it ends if it finds no way back.
  struct Lost {
    std::string why;
    EndReason otherwise;
  };

  void On(const RoundStarted& e);
  void On(const RoundStopped& e);
  void On(const Dismissed& e);
  void On(const CoordinatorLost& e);
  void On(const Fenced& e);
  void On(const Rejoined& e);
  void On(const RejoinFailed& e);
  void On(const WorkerEnded& e);
  void On(const SnapshotWanted& e);
  void On(const SnapshotReported& e);
  void On(const WorkersGone& e);
  void On(const SignalReceived& e);
  void On(const AgentBroken& e);
  void On(const AgentTick& e);

  bool InRound(Round round) const {
    return state_ == State::kRunning && round == assignment_.round && !end_ && !lost_;
  }
  // Ends the workers, if there are any; what comes after is in end_, lost_ and succeeded_.
  void Stop(int signo);
  void Sweep();
  // The job goes on without this node. The first reason stands. `at_once`: the others may have begun the next
  // round, so the workers get no time to end by themselves.
  //   REQUIRES: not Seeking; not Idle, if the agent is to end.
  void CutOff(Lost lost, bool at_once);
  void Seek();
  // After a try that failed although somebody was found; with growing pauses, until the time is over.
  void SeekAgain(const std::string& why);
  // Ends the agent as soon as nothing is left of its workers. The first reason stands.
  void FinishWith(EndReason reason, int signo, std::string why);
  // Tells the coordinator that this node leaves by itself.
  void Leave(std::string reason);
  void Finished();
  void Say(std::string text);

  const AgentPolicy policy_;
  State state_ = State::kIdle;
  Assignment assignment_;
  std::set<LocalRank> alive_;           // workers that have not ended
  bool stuck_ = false;                  // a worker of this round is stuck: that ends the job
  bool failed_ = false;                 // a worker of this round ended badly, before it was told to stop
  bool succeeded_ = false;              // all workers of this round ended with 0
  bool killing_ = false;                // KillWorkers given, WorkersGone not yet come
  bool signaled_ = false;               // somebody sent the agent a signal
  std::optional<EndReason> end_;        // set: the agent ends once it has nothing left
  std::string end_why_;                 // with end_
  std::optional<std::string> leaving_;  // why; its workers are not gone yet
  std::optional<Lost> lost_;            // set: the node is cut off
  std::optional<TimePoint> grace_end_;  // Stopping, before the SIGKILL

  int64_t snapshot_step_ = -1;          // the newest snapshot of this round
  std::optional<int64_t> wanted_from_;  // set: a snapshot is wanted, of at least this step

  std::optional<TimePoint> seek_at_;      // Seeking: the next try begins then; none: one is going on
  TimePoint seek_end_;                    // Seeking
  Duration pause_{};                      // before the last try
  std::optional<TimePoint> rejoined_at_;  // the last time

  // Of the Step that is going on.
  TimePoint now_;
  AgentEffects effects_;
};

}  // namespace ddprun
