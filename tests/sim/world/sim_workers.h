// The simulated workers of one node in one round: they do steps together with those of the other nodes,
// report them and write snapshots.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/assignment.h"
#include "base/exit_info.h"
#include "base/ids.h"
#include "tests/sim/script.h"
#include "tests/sim/world/random.h"
#include "tests/sim/world/sim_disk.h"
#include "tests/sim/world/sim_host.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {

// State shared by all processes of a simulation.
struct SimJob {
  std::function<void(const std::string& host)> fence_fell = {};
  const Settings* settings = nullptr;
  SimClock* clock = nullptr;
  SimTcp* tcp = nullptr;
  SimDisk* disk = nullptr;
  Trace* trace = nullptr;
  std::function<HostId(const std::string& addr)> host_of;
  bool calm = false;
  int64_t steps_done = 0;
  int64_t fences_fallen = 0;
};

// One process per local rank. Their collective is a star: each node reports its step to the node with group
// rank 0 and gets a message when all nodes have done it. A broken or silent connection ends all workers of a
// node, as an all-reduce does.
//   Order: `ended` is called once for each worker unless Vanish is called first; Kill and
//          Fail call it directly.
class SimWorkers {
 public:
  struct Outside {
    // `consequence`: the worker failed because another one had failed, as far as it can detect.
    std::function<void(LocalRank, ExitInfo, bool consequence)> ended;
    std::function<void(int64_t step, std::optional<int64_t> snapshot_step)> report;  // to the agent's socket
  };

  SimWorkers(SimJob* job, SimHost* host, const Assignment& assignment, int nproc, Random random,
             Outside outside);
  ~SimWorkers();
  SimWorkers(const SimWorkers&) = delete;
  SimWorkers& operator=(const SimWorkers&) = delete;

  void Start();
  // Signals all workers. Each stops doing steps, saves and exits after a random time of at most
  // Settings::save, unaffected by the end of other workers. A second signal has no effect.
  void Signal(int signo);
  // SIGKILL to all workers. They end at once.
  void Kill();
  // Ends one random running worker with `exit`.
  void Fail(ExitInfo exit);
  // The agent requests a snapshot.
  void WantSnapshot() { snapshot_wanted_ = true; }
  // The host lost its power or the warden was killed: the workers end without a callback.
  void Vanish();
  void Suspend();
  void Resume();

  int alive() const { return static_cast<int>(alive_.size()); }
  Round round() const { return assignment_.round; }

 private:
  struct Peer {
    SimSocket socket;
    int64_t done = -1;  // the newest step that the node has reported; -1: none yet
  };

  bool plain() const { return job_->settings->plain != 0; }
  bool is_master() const { return assignment_.group_rank == GroupRank(0); }
  // Runs `what` on the host after `d`, unless the group is broken or destroyed first.
  void After(Duration d, std::function<void()> what);
  void StartPlain();
  void Listen();
  void Connect();
  void OnMessage(const std::string& message);  // from the master: a step or "end"
  void OnPeerDone(uint64_t connection, int64_t step);
  void Go(int64_t step);  // all nodes have done `step` steps: reports that and starts the next one
  void Done();            // this node has done its part of the next step
  void MaybeAdvance();
  void Write();
  void Tell(const std::string& message);
  void Succeed();
  // The collective has failed: each running worker exits with code 1 shortly.
  void Break(const std::string& why, bool consequence);
  void Watch();  // breaks the group if no message arrives within the collective's timeout
  void End(LocalRank rank, ExitInfo exit, bool consequence = false);
  void HangUp();
  void Detail(const std::string& text) const { job_->trace->Detail(job_->clock->now(), text); }

  SimJob* const job_;
  SimHost* const host_;
  const Assignment assignment_;
  Random random_;
  const Outside outside_;
  std::set<LocalRank> alive_;
  bool broken_ = false;  // the group is broken or its workers are about to end: it does no more steps
  bool saving_ = false;  // the workers got a signal
  bool over_ = false;    // all steps are done
  bool snapshot_wanted_ = false;

  int64_t step_ = -1;       // steps done by all nodes; -1: not all have connected
  bool step_done_ = false;  // this node has done its part of the next step
  uint64_t said_ = 0;       // messages and finished writes so far, for Watch
  std::optional<int64_t> snapshot_step_;
  SimDisk::WriterId writer_ = 0;
  SimDisk::WriterId seen_ = 0;
  std::optional<SimSocket> to_master_;
  std::map<uint64_t, Peer> peers_;  // by connection; used by the master only
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::sim
