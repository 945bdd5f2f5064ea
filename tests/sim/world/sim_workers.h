// The workers of one node in one round: they do steps together with those of the other nodes, report them,
// write snapshots, and end, by themselves or not.
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

// What all workers of a simulation share.
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

// One process a local rank. Their collective is a star: each node tells the one with group rank 0 that it has
// done a step, and hears when all have. A connection that breaks ends all workers of a node, as an all-reduce
// would; so does one that says nothing for too long.
//   Order: `ended` is called once for each worker, unless Vanish came first; never from inside a call but
//   Kill.
class SimWorkers {
 public:
  struct Outside {
    // `consequence`: it failed because others had, as far as it can see.
    std::function<void(LocalRank, ExitInfo, bool consequence)> ended;
    std::function<void(int64_t step, std::optional<int64_t> snapshot_step)> report;  // to the agent's socket
  };

  SimWorkers(SimJob* job, SimHost* host, const Assignment& assignment, int nproc, Random random,
             Outside outside);
  ~SimWorkers();
  SimWorkers(const SimWorkers&) = delete;
  SimWorkers& operator=(const SimWorkers&) = delete;

  void Start();
  // To all of them. They do no more steps, save what they have, and end, each in its time; that others end does not
  // matter to them. A second signal is not heeded.
  void Signal(int signo);
  // SIGKILL to all, now.
  void Kill();
  // One of those that run ends like this.
  void Fail(ExitInfo exit);
  // The agent wants a snapshot.
  void WantSnapshot() { snapshot_wanted_ = true; }
  // With the host's power. Nobody is told.
  void Vanish();
  void Suspend();
  void Resume();

  int alive() const { return static_cast<int>(alive_.size()); }
  Round round() const { return assignment_.round; }

 private:
  struct Peer {
    SimSocket socket;
    int64_t done = -1;  // the newest step that it has said it is done with; -1: only that it is there
  };

  bool plain() const { return job_->settings->plain != 0; }
  bool is_master() const { return assignment_.group_rank == GroupRank(0); }
  // Runs `what` on the host after `d`, unless the group is broken or gone by then.
  void After(Duration d, std::function<void()> what);
  void StartPlain();
  void Listen();
  void Connect();
  void OnMessage(const std::string& message);  // to a node that is not the master: "go STEP" or "end"
  void OnPeerDone(uint64_t connection, int64_t step);
  void Go(int64_t step);  // `step` steps are done by all: report, and do the next one
  void Done();            // this node's part of the next step
  void MaybeAdvance();
  void Write();
  void Tell(const std::string& message);
  void Succeed();
  // All workers that run end soon, each by itself: what they did together cannot go on.
  void Break(const std::string& why, bool consequence);
  void Watch();  // that somebody says something
  void End(LocalRank rank, ExitInfo exit, bool consequence = false);
  void HangUp();
  void Detail(const std::string& text) const { job_->trace->Detail(job_->clock->now(), text); }

  SimJob* const job_;
  SimHost* const host_;
  const Assignment assignment_;
  Random random_;
  const Outside outside_;
  std::set<LocalRank> alive_;
  bool broken_ = false;  // the group, or its workers are about to end: no step is done any more
  bool saving_ = false;  // they were signaled
  bool over_ = false;    // all steps are done
  bool snapshot_wanted_ = false;

  int64_t step_ = -1;       // steps done by all; -1: they have not met
  bool step_done_ = false;  // this node's part of the next one
  uint64_t said_ = 0;       // how often something was said: Watch
  std::optional<int64_t> snapshot_step_;
  SimDisk::WriterId writer_ = 0;
  SimDisk::WriterId seen_ = 0;
  std::optional<SimSocket> to_master_;
  std::map<uint64_t, Peer> peers_;  // by connection: master only
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::sim
