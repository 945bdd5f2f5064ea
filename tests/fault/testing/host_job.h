// A job on hosts of its own: an agent on each, which meet at the first; and what tests of it have in common.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fault/testing/hosts.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"

namespace ddprun {

// How long a test waits for what should take a second or two: the machine may be busy.
constexpr Duration kPatience = seconds(25);
// Of the jobs below: how long a silent node counts as alive.
constexpr Duration kLease = milliseconds(2000);

//   Threads: one caller at a time.
class HostJob {
 public:
  // `options` of all agents besides where and how they meet; `program` with its arguments. Nothing runs yet.
  HostJob(int hosts, Args options, Args program);

  Hosts& hosts() { return hosts_; }

  // Starts the agent of a host, with more options than the others; the one that ran there must have ended.
  Process& Start(int host, const Args& more = {}, const Environment& environment = {});
  // Agents that start from now on are started by that command, to which their own is added.
  void StartWith(Args command) { start_with_ = std::move(command); }
  // Those that start from now on meet there; at first at host 0.
  void MeetAt(int host) { meeting_host_ = host; }
  // They are given its address, not its name.
  void MeetByAddress() { by_address_ = true; }

  Process& agent(int host) { return *agents_.at(host); }

  // Waits until the agent has started workers in a world of that size; returns the round. Fails the test when
  // it does not come to that.
  int AwaitWorld(int host, int world_size);
  // Waits for a line that the agent says; returns it. Fails the test when it does not.
  std::string AwaitSaid(int host, const std::string& part, Duration timeout = kPatience);
  // Waits for a line that the workers of a host print.
  std::string AwaitPrinted(int host, const std::string& part, Duration timeout = kPatience);

  // Waits for the end of an agent and expects it to be that one, and nothing to be left on its host.
  void ExpectEnd(int host, const ProcessEnd& end);

  // Runs ddpctl on a host, for the coordinator of this job; returns it when it has ended.
  std::unique_ptr<Process> Control(int host, const Args& args);

 private:
  std::string Endpoint() const;

  Hosts hosts_;
  const Args options_;
  const Args program_;
  int meeting_host_ = 0;
  bool by_address_ = false;
  Args start_with_;
  std::vector<std::unique_ptr<Process>> agents_;
};

// Skips where there can be no hosts. Notes when the fault happened and what came of it, for tools/dev faults.
class HostFaultTest : public testing::Test {
 protected:
  void SetUp() override;

  void FaultNow();
  // Somebody who acts on it has heard of it.
  void Detected(TimePoint at);
  // The last worker of the new round runs.
  void Recovered(TimePoint at);

 private:
  TimePoint fault_{};
  TimePoint detected_{};
};

// A job that trains, a worker on each host, with one restart. Its first host prints the steps and is held
// (Process::HoldOut): training goes on only as far as the test has read, until ExpectResult.
class TrainingTest : public HostFaultTest {
 protected:
  struct Setup {
    int min = 1;
    int max = 2;              // nodes in a round
    int hosts = 0;            // there are; 0: max
    int present = 0;          // agents from the beginning; 0: on all hosts
    int batch = 8;            // sequences a step, over all workers
    bool by_address = false;  // they meet at an address, not at a name
    Args options = {};
    std::string shell = {};                             // a line of shell that each worker begins with
    std::map<int, Args> more_options = {};              // of a host
    std::map<int, Environment> environments = {};       // of a host's agents and workers
    std::function<void(const std::string&)> prepare{};  // once there are hosts and a directory for snapshots
  };
  // Those that are present train, `world_size` workers in all (0: one on each host); the first has printed
  // some steps and taken snapshots.
  void StartTraining(const Setup& setup, int world_size = 0);
  void StartTraining() { StartTraining(Setup{}); }
  // The agent of a host is there, for the first time or again.
  void StartHost(int host);
  // Those hosts train together, one worker on each.
  void AwaitWorldOf(const std::vector<int>& hosts);

  HostJob& job() { return *job_; }
  Hosts& hosts() { return job_->hosts(); }
  // The only worker of a host.
  pid_t worker(int host);

  // The coordinator says that the round has ended.
  void AwaitRoundEnd();
  // The next round, of `world_size`, goes on from a snapshot. Returns what the first host's agent has said
  // since all trained.
  std::string AwaitRestart(int world_size);
  // The round ends, and a reason like that is given; the next one costs no restart.
  void ExpectChange(const std::string& reason, int world_size);
  // A worker has failed: of all that failed with it, `cause` is named as the first. It costs the one restart.
  void ExpectFailure(const std::string& cause, int world_size);
  // Those hosts end well, and the parameters are, bit for bit, those of a run that nothing disturbs.
  void ExpectResult(const std::vector<int>& hosts);
  // Since all hosts trained no round has ended but by success.
  void ExpectUndisturbed();

 private:
  Setup setup_;
  size_t said_before_ = 0;  // by the first host, until all trained
  std::unique_ptr<HostJob> job_;
};

}  // namespace ddprun
