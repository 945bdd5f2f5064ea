// A job on hosts of its own: an agent on each, which meet at the first; and what tests of it have in common.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fault/testing/hosts.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"

namespace ddprun {

// How long a test waits for what should take a second or two: the machine may be busy.
constexpr Duration kPatience = seconds(40);
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
  // Those that start from now on meet there; at first at host 0.
  void MeetAt(int host) { meeting_host_ = host; }

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

 private:
  Hosts hosts_;
  const Args options_;
  const Args program_;
  int meeting_host_ = 0;
  std::vector<std::unique_ptr<Process>> agents_;
};

// Skips where there can be no hosts. Notes when the fault happened and what came of it, for tools/dev faults.
class HostFaultTest : public testing::Test {
 protected:
  void SetUp() override;

  void FaultNow() { fault_ = std::chrono::steady_clock::now(); }
  // Somebody who acts on it has heard of it.
  void Detected(TimePoint at);
  // The last worker of the new round runs.
  void Recovered(TimePoint at);

 private:
  TimePoint fault_{};
  TimePoint detected_{};
};

// A job that trains: one worker on each host, 1 to all hosts, one restart. Its first host prints the steps,
// and is held (Process::HoldOut): training goes on only as far as the test has read, until ExpectResult.
class TrainingTest : public HostFaultTest {
 protected:
  struct Setup {
    int hosts = 2;
    Args options = {};             // of the agents
    Environment environment = {};  // of the agents and the workers
    std::string shell = {};        // a line of shell that each worker begins with
  };
  // All hosts train; the first has printed some steps and snapshots.
  void StartTraining(const Setup& setup);
  void StartTraining() { StartTraining(Setup{}); }
  // An agent is there again, and all hosts train.
  void ComeBack(int host);

  HostJob& job() { return *job_; }
  Hosts& hosts() { return job_->hosts(); }

  // The first host says why it stops its workers, and goes on from a snapshot with `world_size` others.
  void ExpectRestart(const std::string& reason, int world_size);
  // Those hosts end well, and the parameters are, bit for bit, those of a run that nothing disturbs.
  void ExpectResult(const std::vector<int>& hosts);
  // No round has ended but the last, by success.
  void ExpectUndisturbed();

  // The only worker of a host.
  pid_t worker(int host);

 private:
  std::unique_ptr<HostJob> job_;
  std::vector<int> all_;
};

}  // namespace ddprun
