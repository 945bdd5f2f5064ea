// The part of a simulated world that a job with a register adds: the register, the processes that may lead, and their rules.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/world/host_state.h"
#include "tests/sim/world/register_watch.h"
#include "tests/sim/world/sim_register.h"
#include "tests/sim/world/sim_registered_job.h"
#include "tests/sim/world/sim_voters.h"
#include "tests/sim/world/takeover_rules.h"

namespace ddprun::sim {

class RegisteredWorld {
 public:
  using Hosts = std::vector<std::unique_ptr<HostState>>;

  // The arguments must outlive this object.
  //   asleep: whether the host does not run, or has run for too short a time to kill workers whose fence has expired.
  RegisteredWorld(SimJob* job, const Hosts* hosts, std::function<bool(const SimHost&)> asleep);

  // Whether a process may be started on the host. With voters, the first process of host 0 is the only one there: a later one
  // would found the job again.
  bool MayStart(int host) const;
  // Starts a process on a host. It lives until SimRegisteredJob::Kill, also when its agent has ended.
  SimRegisteredJob* Start(int host, std::function<bool(const NodeId&)> has_workers);
  // Returns the process that leads, or else the last one that has led; null: none has, or it has ended.
  SimRegisteredJob* leader();
  // Returns the hosts of a fault, in which the number of hosts stands for that of leader().
  std::vector<int> Resolve(const std::vector<int>& hosts);

  // --- Faults

  // All processes of the host are stopped, continue, or are killed.
  void Freeze(int host);
  void Thaw(int host);
  void Kill(int host);
  // Kills the process of leader(), with its agent. Returns false if there is none.
  bool KillLeader();
  // Applies a fault of the register. Returns what ends it, or null if `fault` is not one.
  std::function<void()> Disturb(const Fault& fault);
  void Calm();

  void Check();
  // Checks the end of the job when all agents have ended.
  void CheckEnd(int64_t newest_step);
  bool alive() const;  // whether a process lives
  // Whether the register can still be used: it has no voters, or a quorum of them lives. A process that is started again is
  // another voter, so a quorum that is lost does not come back.
  bool quorum_lost() const { return quorum_lost_; }
  bool closed() const { return rules_.closed() || rules_.end().has_value(); }
  void AddCounts(SimResult& result) const;
  TakeoverRules& rules() { return rules_; }

 private:
  struct Process {
    int host = 0;
    std::string id;
    std::unique_ptr<SimRegisteredJob> job;
  };
  // While nothing is disturbed, a job with enough agents has a round after a bounded time.
  void CheckSealed();
  TakeoverRules::Running Running() const;
  bool Lives(const std::string& id) const;
  // Without a quorum of its voters, a job has no leader.
  bool CanHaveLeader() const { return !voting() || (voters_.known() && voters_.QuorumLives()); }
  const RegisterRecord& record() const { return voting() ? watch_.record() : register_.record(); }
  bool voting() const { return job_->settings->voters != 0; }

  SimJob* const job_;
  const Hosts& hosts_;
  const std::function<bool(const SimHost&)> asleep_;
  SimRegister register_;
  RegisterWatch watch_;  // with voters
  SimVoters voters_;
  bool quorum_lost_ = false;
  std::optional<TimePoint> sealed_by_;  // set: from now on nothing is disturbed
  TakeoverRules rules_;
  std::vector<Process> processes_;
  size_t leader_ = 0;  // index of leader() + 1; 0: none has led
};

}  // namespace ddprun::sim
