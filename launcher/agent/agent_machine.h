// One node's part in a job: when its workers start, when they are stopped and how, and when the agent ends.
//
//            Start                     a worker failed, Stop, Dismiss,
//   +------+ -------> +---------+      signal, coordinator lost        +----------+  nothing left
//   +----------+ | Idle |          | Running | -----------------------------------> | Stopping |
//   --------------> | Finished |
//   +------+ <------+ +---------+ ---- all workers ended with 0 -----> +----------+   and told so
//   +----------+
//                   |                                                       |
//                   +------ nothing left; Ready or Succeeded is sent -------+
//
// Stopping is always the same: a signal, a grace period, SIGKILL, and then a sweep over everything the
// workers started.
#pragma once

#include <csignal>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/assignment.h"
#include "base/ids.h"
#include "base/time.h"
#include "launcher/process/exit_info.h"

namespace ddprun {

struct AgentPolicy {
  int nproc = 1;     // workers to be started here, >= 1
  std::string host;  // this node's name in messages
  // Between the first signal and SIGKILL, whatever the reason.
  Duration grace = seconds(30);
};

// --- Events
// ---------------------------------------------------------------------------------------------------

struct RoundStarted {
  Assignment assignment;
  std::string reason;
};
struct RoundStopped {
  Round round;
  std::string reason;
};
// The coordinator's last word. OK: the job succeeded.
struct Dismissed {
  absl::Status outcome;
};
// The coordinator cannot be reached any more.
struct CoordinatorLost {
  std::string reason;
};
struct WorkerEnded {
  LocalRank local_rank;
  ExitInfo exit;
  std::string progress = {};  // how far it had come, in its own words: "after step 57"; empty: it never said
};
// Nothing that the workers started is alive any more, or cannot be killed; that is said elsewhere.
struct WorkersGone {};
struct SignalReceived {
  int signo = 0;
};
// The agent itself cannot go on.
struct AgentBroken {
  absl::Status status;
};
struct AgentTick {};

using AgentEvent = std::variant<RoundStarted, RoundStopped, Dismissed, CoordinatorLost, WorkerEnded,
                                WorkersGone, SignalReceived, AgentBroken, AgentTick>;

// --- Effects
// --------------------------------------------------------------------------------------------------

struct StartWorkers {
  Assignment assignment;
};
struct SignalWorkers {
  int signo = SIGTERM;
};
// SIGKILL to all that the workers are and started; answered by WorkersGone.
struct KillWorkers {};
struct SendWorkersFailed {
  Round round;
  std::string cause;
};
struct SendWorkersSucceeded {
  Round round;
};
// Open an empty store for the next round and say that the node is ready for it.
struct SendReady {
  Round round;
};
struct SendLeave {
  std::string reason;
};
// Show the failure report of the round, from what the shell has kept.
struct ReportFailures {
  Round round;
};
struct Tell {
  std::string text;  // one line for people
};
// The agent ends with this exit code. Given once, last.
struct Finish {
  int exit_code = 0;
};

using AgentEffect = std::variant<StartWorkers, SignalWorkers, KillWorkers, SendWorkersFailed,
                                 SendWorkersSucceeded, SendReady, SendLeave, ReportFailures, Tell, Finish>;
using AgentEffects = std::vector<AgentEffect>;

// Pure: equal (state, event, now) give equal effects.
class AgentMachine {
 public:
  enum class State { kIdle, kRunning, kStopping, kFinished };

  explicit AgentMachine(AgentPolicy policy);

  [[nodiscard]] AgentEffects Step(const AgentEvent& event, TimePoint now);  // REQUIRES: now never decreases
  // Step(AgentTick{}) at the latest then; none = nothing pending.
  std::optional<TimePoint> NextDeadline() const { return grace_end_; }

  State state() const { return state_; }
  // The round of the running or stopping workers; in Idle the last one, -1 before the first.
  Round round() const { return assignment_.round; }
  int alive() const { return static_cast<int>(alive_.size()); }

 private:
  void On(const RoundStarted& e);
  void On(const RoundStopped& e);
  void On(const Dismissed& e);
  void On(const CoordinatorLost& e);
  void On(const WorkerEnded& e);
  void On(const WorkersGone& e);
  void On(const SignalReceived& e);
  void On(const AgentBroken& e);
  void On(const AgentTick& e);

  // Ends the workers, if there are any; what comes after is in exit_code_ and succeeded_.
  void Stop(int signo);
  void Sweep();
  // Ends the agent as soon as nothing is left of its workers. The first reason stands.
  void FinishWith(int exit_code, int signo);
  void Say(std::string text);

  const AgentPolicy policy_;
  State state_ = State::kIdle;
  Assignment assignment_;
  std::set<LocalRank> alive_;           // workers that have not ended
  bool failed_ = false;                 // a worker of this round ended badly, before it was told to stop
  bool succeeded_ = false;              // all workers of this round ended with 0
  bool killing_ = false;                // KillWorkers given, WorkersGone not yet come
  bool signaled_ = false;               // somebody sent the agent a signal
  std::optional<int> exit_code_;        // set: the agent ends once it has nothing left
  std::optional<TimePoint> grace_end_;  // Stopping, before the SIGKILL

  // Of the Step that is going on.
  TimePoint now_;
  AgentEffects effects_;
};

}  // namespace ddprun
