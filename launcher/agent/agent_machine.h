// The agent's state machine: decides when a node's workers start, when and how they are stopped, when the
// node searches for its coordinator again, and when the agent ends.
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
// A node is cut off if it was evicted, if it has lost its connection to the coordinator, or if its fence has
// expired: the others continue without it, so it rejoins as a new node or ends. Stopping means a signal, a
// grace period, SIGKILL, and a sweep of all processes that the workers started. The signal and the grace
// period are skipped if the next round may have started on other nodes.
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
  int nproc = 1;  // number of local workers, >= 1
  // Time between the first signal and SIGKILL, for every stop.
  Duration grace = seconds(30);
  // How long a silent node counts as alive. A node that is cut off seeks its coordinator for a second longer.
  Duration lease = seconds(5);
  ExitCodes exit_codes = ExitCodes::kTorchrun;
};

// The reason with which an agent ends after a dismissal.
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
// The coordinator's last message to this node.
struct Dismissed {
  Dismissal reason = {};
  std::string message = {};  // for users
};
// The connection to the coordinator broke.
struct CoordinatorLost {
  std::string reason;
};
// The fence has expired: the node's lease may be over. The warden kills the workers; WorkerEnded follows.
struct Fenced {};
// Results of Rejoin: the coordinator has accepted this node as a new one, or was not found.
struct Rejoined {};
struct RejoinFailed {
  std::string reason;
};
struct WorkerEnded {
  LocalRank local_rank;
  ExitInfo exit;
};
// The coordinator requests a snapshot from the workers of `round`.
struct SnapshotWanted {
  Round round;
  std::string reason = {};
  int64_t from_step = 0;  // furthest step any worker has reported; older snapshots would lose steps
};
// The newest snapshot that a worker has reported as complete. Reported repeatedly.
struct SnapshotReported {
  Round round;
  int64_t step = 0;
};
// All processes that the workers started are gone, except those that cannot be killed.
struct WorkersGone {
  // Processes or threads that SIGKILL has not ended, one line for each. They may hold a device or a file.
  std::vector<std::string> unkillable = {};
};
struct SignalReceived {
  int signo = 0;
};
// The agent itself cannot continue.
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
// Send SIGKILL to the workers and all their descendants. Answered by WorkersGone.
struct KillWorkers {};
// Ask each worker for a snapshot, over the workers' socket.
struct AskForSnapshot {
  Round round;
};
// Report the failure of this worker; the shell has its details.
struct SendWorkersFailed {
  Round round;
  LocalRank local_rank;
};
struct SendWorkersSucceeded {
  Round round;
};
// Open an empty store for the next round and report that the node is ready, with all failures of `round`.
struct SendReady {
  Round round;
};
struct SendSnapshotTaken {
  Round round;
  int64_t step = 0;
};
// Report that the node leaves the job. Given again, with workers_gone, when its workers are gone.
struct SendLeave {
  std::string reason;
  bool workers_gone = false;
};
// Close the connection, seek the coordinator for at most `limit`, and join as a new node. Answered by
// Rejoined, RejoinFailed, or CoordinatorLost if a new connection broke.
struct Rejoin {
  Duration limit{};
};
// Show the failure report of the round; the shell has its content.
struct ReportFailures {
  Round round;
};
// Log a line.
struct Tell {
  std::string text;  // one line for users
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
  // The round of the running or stopping workers; in other states the last round, -1 before the first.
  Round round() const { return assignment_.round; }
  int alive() const { return static_cast<int>(alive_.size()); }

 private:
  // Why the node is cut off, and the reason with which the agent ends if it cannot rejoin.
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
  // Signals the workers, or sweeps if none is alive. end_, lost_ and succeeded_ decide what follows.
  void Stop(int signo);
  void Sweep();
  // The job continues without this node. Only the first reason counts. `at_once`: other nodes may have
  // started the next round, so the workers are killed without a grace period.
  //   REQUIRES: not Seeking; not Idle, if the agent is to end.
  void CutOff(Lost lost, bool at_once);
  void Seek();
  // Schedules another try after a connection broke or the node was evicted. Pauses grow, until seek_end_.
  void SeekAgain(const std::string& why);
  // Ends the agent when its workers are gone. Only the first reason counts.
  void FinishWith(EndReason reason, int signo, std::string why);
  // Reports to the coordinator that this node leaves on its own.
  void Leave(std::string reason);
  void Finished();
  void Say(std::string text);

  const AgentPolicy policy_;
  State state_ = State::kIdle;
  Assignment assignment_;
  std::set<LocalRank> alive_;           // workers that have not ended
  bool stuck_ = false;                  // a worker of this round is stuck, which ends the job
  bool failed_ = false;                 // a worker of this round failed before it was stopped
  bool succeeded_ = false;              // all workers of this round exited with 0
  bool killing_ = false;                // waiting for WorkersGone after KillWorkers
  bool signaled_ = false;               // the agent has received a signal
  std::optional<EndReason> end_;        // set: the agent ends when its workers are gone
  std::string end_why_;                 // with end_
  std::optional<std::string> leaving_;  // set: SendLeave with this reason is due when the workers are gone
  std::optional<Lost> lost_;            // set: the node is cut off
  std::optional<TimePoint> grace_end_;  // Stopping: SIGKILL is due then

  int64_t snapshot_step_ = -1;          // the newest snapshot of this round
  std::optional<int64_t> wanted_from_;  // set: a snapshot of at least this step is requested

  std::optional<TimePoint> seek_at_;      // Seeking: start of the next try; none: one is in progress
  TimePoint seek_end_;                    // Seeking: the search ends then
  Duration pause_{};                      // before the last try
  std::optional<TimePoint> rejoined_at_;  // time of the last rejoin

  // During Step only.
  TimePoint now_;
  AgentEffects effects_;
};

}  // namespace ddprun
