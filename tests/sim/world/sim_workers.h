// The simulated workers of one node in one round. They do steps together with the workers of the other nodes,
// report the steps, and write snapshots. If Settings::survives, they ask to survive the round.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/assignment.h"
#include "base/exit_info.h"
#include "base/ids.h"
#include "base/worker_evidence.h"
#include "tests/sim/script.h"
#include "tests/sim/world/random.h"
#include "tests/sim/world/sim_disk.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/sim_state.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {

class HangRules;

// State shared by all processes of a simulation.
struct SimJob {
  HangRules* hangs = nullptr;
  std::function<void(const std::string& host)> fence_fell = {};
  const Settings* settings = nullptr;
  SimClock* clock = nullptr;
  SimTcp* tcp = nullptr;
  SimDisk* disk = nullptr;
  Trace* trace = nullptr;
  std::function<HostId(const std::string& addr)> host_of;
  StateRules* state = nullptr;
  std::function<void(FaultKind)> fired;  // counts a fault that takes effect after it was ordered
  bool calm = false;
  int64_t steps_done = 0;
  SurvivalCounts survival = {};
  int64_t fences_fallen = 0;
  int64_t stops = 0;  // see SimResult
};

// Faults that apply to all workers of a host.
struct HostHabits {
  bool deaf = false;     // workers ignore SIGTERM and notices of pre-emption
  bool no_exec = false;  // workers cannot be started
  bool hang = false;     // workers do not park
  // At this point of a step, one worker of the host is killed.
  enum class Point { kNever = -1, kPrepared = 0, kCommitted = 1, kContinued = 2 };
  Point fail_at = Point::kNever;
  // One worker of the host makes no steps for this time, from its next step on; Duration::max(): until it is killed.
  std::optional<Duration> pause;
  // Until this simulated time, steps of the host take so many percent of their time.
  TimePoint slow_until;
  int slow = 100;
  bool slow_counted = true;  // whether a step has been slow
};

// There is one process per local rank. The collective of the nodes is a star: each node reports each step to
// the node with group rank 0, the master, and gets a message when all nodes have done that step. If a
// connection breaks or is silent for too long, all workers of the node fail, as they would in an all-reduce. When a
// node has connected, it sends what its workers have, and the master decides from which step all continue (DecideStep).
//
// After a notice of pre-emption, a node adds to its reports that it has the notice. If any node has it, the master writes a
// snapshot of the step, and tells all nodes to stop.
//
// A worker that may survive parks instead of failing, and if the agent asks it to.
//   Order: `ended` is called once for each worker, unless Vanish is called first. Kill and Fail call it
//          before they return.
class SimWorkers {
 public:
  struct Outside {
    // `consequence`: as far as the worker can detect, it failed because another worker had failed.
    std::function<void(LocalRank, ExitInfo, bool consequence)> ended;
    // Called for each report that the workers send to the agent's socket.
    std::function<void(int64_t step, std::optional<int64_t> snapshot_step)> report;
    std::function<void(LocalRank)> asks;  // to survive
    std::function<void(LocalRank, const std::string& why)> parked;
  };

  // `processes`: those that take part; `kept`: which of them have survived the round before.
  SimWorkers(SimJob* job, SimHost* host, HostHabits* habits, const Assignment& assignment,
             std::map<LocalRank, SimProcess> processes, std::set<LocalRank> kept, Random random,
             Outside outside);
  ~SimWorkers();
  SimWorkers(const SimWorkers&) = delete;
  SimWorkers& operator=(const SimWorkers&) = delete;

  void Start();
  // Signals all workers but those in `spare`. Each worker stops doing steps, saves, and exits after a random time of at
  // most Settings::save, even if other workers exit first. A second signal has no effect.
  void Signal(int signo, const std::set<LocalRank>& spare = {});
  // Ends all workers but those in `spare` by SIGKILL.
  void Kill(const std::set<LocalRank>& spare = {});
  // What the agent tells workers that have asked to survive.
  void Tell(const std::set<LocalRank>& who, bool round_over, bool no_round_follows);
  // Returns the processes in `keep`, which have parked; they are no longer here.
  std::map<LocalRank, SimProcess> Take(const std::set<LocalRank>& keep);
  // Ends a random worker that has parked. Returns false if there is none.
  bool FailParked();
  // Ends one random running worker with `exit`.
  void Fail(ExitInfo exit);
  // Called when the agent requests a snapshot.
  void WantSnapshot() { snapshot_wanted_ = true; }
  // Called when the agent asks the workers to stop because of a notice of pre-emption. See Settings::OnNotice.
  void Stop();
  // As a signal of a notice that is sent to all processes of a node: ends them if Settings::kEndBySignal.
  void NoticeSignal();
  // Ends all workers without a callback, because the host has lost power or the warden was killed.
  void Vanish();
  void Suspend();
  void Resume();

  int alive() const { return static_cast<int>(alive_.size()); }
  int unparked() const { return static_cast<int>(alive_.size() - parked_.size()); }
  // Whether a worker other than these runs.
  bool Running(const std::set<LocalRank>& spare) const {
    return std::any_of(alive_.begin(), alive_.end(), [&](LocalRank rank) { return !spare.contains(rank); });
  }
  Round round() const { return assignment_.round; }
  const Assignment& assignment() const { return assignment_; }
  // How long the workers have waited, as they measure it.
  Duration waited() const { return waited_; }
  // What evidence says of the workers that run, except idle times.
  std::vector<WorkerEvidence> Evidence() const;

 private:
  struct Peer {
    SimSocket socket;
    int64_t done = -1;    // the newest step that the node has reported; -1: none yet
    bool notice = false;  // the node has a notice
    std::vector<SimProcess> processes =
        {};  // what its workers had when they connected; empty: not connected yet
  };

  bool plain() const { return job_->settings->plain != 0; }
  bool is_master() const { return assignment_.group_rank == GroupRank(0); }
  // Runs `what` on the host after `d`, unless the group is broken or destroyed first.
  void After(Duration d, std::function<void()> what);
  void StartPlain();
  void Listen();
  void Connect();
  void OnMessage(const std::string& message);  // the message is from the master: "from ...", a step or "end"
  void OnPeer(uint64_t connection, const std::string& message);  // "has ...", or a step
  // The workers of all nodes have connected, so that this round is the current one: decides from which step they continue.
  void Decide();
  // The workers of this node take their `actions`, by local rank: j for one that joins with `value`.
  void Continue(int64_t step, uint64_t value, const std::string& actions, int64_t start);
  // The next step of this node, which takes so long if no worker is slow or pauses.
  void DoStep(Duration time);
  // Whether this worker makes no step, and does not react to the end of the round.
  bool Hangs(LocalRank rank) const { return hangs_ && paused_ == rank; }
  void Prepare();
  void Commit(int64_t step);  // no effect on workers that have not prepared the step
  void FailAt(HostHabits::Point point);
  void Park(LocalRank rank, const std::string& why);
  void Go(int64_t step);  // called when all nodes have done `step` steps; reports this, starts the next step
  void Done();            // called when this node has done its part of the next step
  void MaybeAdvance();
  void Write();
  void Tell(const std::string& message);
  void Succeed();
  // Whether a node of the round has a notice, as the master knows.
  bool MustStop() const;
  // The workers of all nodes stop after the step that the master has written.
  void Stopped();
  // Called when the collective has failed. Each running worker exits with code 1 within 100 ms.
  void Break(const std::string& why, bool consequence);
  void Watch();  // breaks the group if no message arrives within the collective's timeout
  void End(LocalRank rank, ExitInfo exit, bool consequence = false);
  void HangUp();
  void Detail(const std::string& text) const { job_->trace->Detail(job_->clock->now(), text); }

  SimJob* const job_;
  SimHost* const host_;
  HostHabits* const habits_;
  const Assignment assignment_;
  Random random_;
  const Outside outside_;
  std::map<LocalRank, SimProcess> processes_;  // those that have not ended
  std::set<LocalRank> alive_;                  // the keys of processes_
  const std::set<LocalRank> kept_;
  std::set<LocalRank> may_survive_;
  std::set<LocalRank> parked_;
  std::set<LocalRank> signaled_;
  bool broken_ = false;  // the group does no more steps: it has failed, got a signal, or has exited
  bool over_ = false;    // all steps are done
  bool snapshot_wanted_ = false;
  bool notice_ = false;    // the workers of this node have a notice
  bool stopping_ = false;  // the master writes the last snapshot before all stop

  int64_t start_no_ = 0;  // see StateRules::Start
  int64_t step_ = -1;     // steps done by all nodes; -1: not all nodes have connected
  // Since when the workers of this node wait for other nodes or for a snapshot of their own. Set while they wait.
  std::optional<TimePoint> waits_since_;
  Duration waited_{};
  bool step_done_ = false;           // this node has done its part of the next step
  std::optional<LocalRank> paused_;  // makes no step
  bool hangs_ = false;               // until it is killed
  bool stopped_ = false;             // because it is stopped, so that only SIGKILL ends it
  uint64_t said_ = 0;                // messages and finished writes so far, for Watch
  std::optional<int64_t> snapshot_step_;
  SimDisk::WriterId writer_ = 0;
  SimDisk::WriterId seen_ = 0;
  std::optional<SimSocket> to_master_;
  std::map<uint64_t, Peer> peers_;  // by connection; used by the master only
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::sim
