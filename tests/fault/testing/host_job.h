// A job on simulated hosts with one agent each, and test fixtures for such jobs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fault/testing/etcd.h"
#include "tests/fault/testing/hosts.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"

namespace ddprun {

// Timeout of operations that normally take one or two seconds. It is long enough for a busy machine.
constexpr Duration kPatience = seconds(25);
// The lease of every HostJob.
constexpr Duration kLease = milliseconds(2000);

// A job with at most one agent on each of its hosts.
//   Threads: one caller at a time.
class HostJob {
 public:
  // All agents will get `options` in addition to the rendezvous options, and run `program`, which includes
  // its arguments. The constructor starts no agent.
  HostJob(int hosts, Args options, Args program);

  Hosts& hosts() { return hosts_; }

  // Starts the agent of a host with the additional options `more`.
  //   REQUIRES: the previous agent of the host has exited.
  Process& Start(int host, const Args& more = {}, const Environment& environment = {});
  // Prefixes the command line of agents started later with `command`.
  void StartWith(Args command) { start_with_ = std::move(command); }
  // Sets the host of the endpoint that agents started later get. Initially it is host 0.
  void SetEndpointHost(int host) { endpoint_host_ = host; }
  // Starts an etcd with one member on each of these hosts. Agents started later use it for the register of the job.
  void UseEtcdOn(const std::vector<int>& hosts);
  // The host of the etcd member that leads the others.
  int EtcdLeader() const;
  // Agents started later get the endpoint as an address instead of a name.
  void UseAddressAsEndpoint() { by_address_ = true; }

  Process& agent(int host) { return *agents_.at(host); }

  // Waits until the agent has started workers of a round with `world_size`, and returns the round. Fails the
  // test on timeout.
  int AwaitWorld(int host, int world_size);
  // Waits for a line with `part` on the agent's stderr and returns it. Fails the test on timeout.
  std::string AwaitLogged(int host, const std::string& part, Duration timeout = kPatience);
  // Like AwaitLogged, but waits for a line on the agent's stdout, which has the output of the workers.
  std::string AwaitPrinted(int host, const std::string& part, Duration timeout = kPatience);

  // Waits until the host's agent ends. Expects that it ends with `end` and that nothing is left on the host.
  void ExpectEnd(int host, const ProcessEnd& end);

  // Runs ddpctl on a host and waits until it exits.
  //   endpoint: empty: this job's.
  std::unique_ptr<Process> Control(int host, const Args& args, const std::string& endpoint = "");

 private:
  std::string Endpoint() const;

  Hosts hosts_;
  const Args options_;
  const Args program_;
  int endpoint_host_ = 0;
  bool by_address_ = false;
  Args start_with_;
  std::map<int, std::unique_ptr<EtcdServer>> etcd_;  // by host; empty: etcd is not used
  std::vector<std::unique_ptr<Process>> agents_;
};

// Skips the test on machines on which hosts cannot be simulated. Records the times of fault, detection and
// recovery for tools/dev faults.
class HostFaultTest : public testing::Test {
 protected:
  void SetUp() override;

  // Records that the fault fires now.
  void FaultNow();
  // Records when a process first reacted to the fault.
  void Detected(TimePoint at);
  // Records when the last worker of the new round was started.
  void Recovered(TimePoint at);

 private:
  TimePoint fault_{};
  TimePoint detected_{};
};

// A training job that may restart once, by default with one worker per host. The first host prints the steps.
// Its output is held (Process::HoldOut): until ExpectResult, training advances only as far as the test reads.
class TrainingTest : public HostFaultTest {
 protected:
  struct Setup {
    int min = 1;              // minimum of --nnodes
    int max = 2;              // maximum of --nnodes
    int hosts = 0;            // number of hosts; 0: max
    int present = 0;          // number of initial agents; 0: one on each host
    int batch = 8;            // sequences per step over all workers
    bool by_address = false;  // the endpoint is an address, not a name
    int etcd_members =
        0;  // members of the etcd that keeps the job's register, on as many more hosts than `hosts`
    Args options = {};
    std::string shell = {};                        // shell command that each worker runs first
    std::map<int, Args> more_options = {};         // additional options of agents, by host
    std::map<int, Environment> environments = {};  // additional variables of agents and workers, by host
    // Called with the snapshot directory before the agents start.
    std::function<void(const std::string&)> prepare{};
  };
  // Creates the job without an agent; for jobs that start in another way.
  void PrepareTraining(const Setup& setup);
  // Starts the initial agents and waits until `world_size` workers (0: one per agent) have done some steps
  // and taken snapshots.
  void StartTraining(const Setup& setup, int world_size = 0);
  void StartTraining() { StartTraining(Setup{}); }
  // Starts the agent of a host, for the first time or again.
  void StartHost(int host);
  // Waits until `hosts` train together with one worker each.
  void AwaitWorldOf(const std::vector<int>& hosts);

  HostJob& job() { return *job_; }
  Hosts& hosts() { return job_->hosts(); }
  // The pid of the host's only worker.
  pid_t worker(int host);

  // Waits until the coordinator logs the end of the round.
  void AwaitRoundEnd();
  // Waits until the next round, with `world_size` workers, resumes from a snapshot. Returns the stderr of the
  // first host's agent since StartTraining.
  std::string AwaitRestart(int world_size);
  // Expects that the round ends for `reason` and that the next round costs no restart.
  void ExpectChange(const std::string& reason, int world_size);
  // Expects that the round ends with a failure whose first cause is `cause`, and that the failure costs the
  // only restart.
  void ExpectFailure(const std::string& cause, int world_size);
  // Expects that the agents of `hosts` exit with 0 and that the parameters are bit-equal to those of an
  // undisturbed run.
  void ExpectResult(const std::vector<int>& hosts);
  // Like ExpectResult, for agents whose ranks are not known, and worlds of several sizes, whose sums are rounded differently: the
  // number of steps is that of an undisturbed run, and the loss differs by at most 1e-3.
  void ExpectCloseResult(const std::vector<int>& hosts);
  // Expects that since StartTraining no round has ended except by success.
  void ExpectUndisturbed();

 private:
  Setup setup_;
  size_t said_before_ = 0;  // bytes of the first agent's stderr at the end of StartTraining
  std::unique_ptr<HostJob> job_;
};

}  // namespace ddprun
