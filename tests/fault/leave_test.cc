// Tests nodes that leave, are stopped, or lose their connection while their workers exit slowly. The workers
// must get their grace period, and no round may start before they have exited.
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const ProcessEnd kFailure{.code = 1};

// Time that workers take to exit: 2.5 leases. If a node stopped sending heartbeats in that time, the fence
// would kill its workers before they have finished.
constexpr int kFinishMs = 5000;

class LeaveTest : public HostFaultTest {
 protected:
  void StartJob(const Args& worker = {"--finish-ms=" + std::to_string(kFinishMs)}, const Args& more = {}) {
    StartProgram(Args{WorkerPath()} + worker, more);
  }
  void StartProgram(const Args& program, const Args& more = {}) {
    const Args options = {"--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=3", "--shutdown-timeout=60"};
    job_ = std::make_unique<HostJob>(2, options + more, program);
    job_->Start(0);
    job_->Start(1);
    round_ = job_->AwaitWorld(0, 2);
    for (const int host : {0, 1}) job_->AwaitPrinted(host, "ready ");
  }
  // Expects that the host's worker of the two-node round finishes saving. Returns the time at which it has
  // finished, in ms of the machine's monotonic clock.
  int ExpectSaved(int host) {
    job_->AwaitPrinted(host, "saving ");
    const std::string saved = job_->AwaitPrinted(host, "saved ");
    EXPECT_EQ(Field(saved, "round"), round_);
    return Field(saved, "at");
  }
  // Expects that neither agent has started another round.
  void ExpectNoOtherRound() {
    for (const int host : {0, 1}) {
      EXPECT_THAT(job_->agent(host).err(),
                  Not(HasSubstr("event=round_started round=\"" + std::to_string(round_ + 1))));
    }
  }

  std::unique_ptr<HostJob> job_;
  int round_ = -1;
};

TEST_F(LeaveTest, SigtermToAllAgents) {
  StartJob();
  FaultNow();
  for (const int host : {0, 1}) job_->agent(host).Signal(SIGTERM);
  for (const int host : {0, 1}) ExpectSaved(host);
  for (const int host : {0, 1}) job_->ExpectEnd(host, kFailure);
  ExpectNoOtherRound();
}

TEST_F(LeaveTest, SigtermToTheCoordinatorsAgentOnly) {
  StartJob({"--finish-ms=" + std::to_string(kFinishMs)}, {"--quorum=none"});
  FaultNow();
  job_->agent(0).Signal(SIGTERM);
  for (const int host : {0, 1}) ExpectSaved(host);
  for (const int host : {0, 1}) job_->ExpectEnd(host, kFailure);
  ExpectNoOtherRound();
  EXPECT_THAT(job_->agent(1).err(), HasSubstr("the agent that hosts the coordinator is leaving"));
}

TEST_F(LeaveTest, ASecondSignalToTheCoordinatorsAgentSkipsTheWait) {
  StartJob({"--stubborn"}, {"--quorum=none"});
  FaultNow();
  job_->agent(0).Signal(SIGTERM);
  job_->AwaitLogged(1, "the agent that hosts the coordinator is leaving");
  job_->agent(0).Signal(SIGTERM);
  job_->AwaitLogged(0, "not waiting for the workers of other nodes");
  job_->ExpectEnd(0, kFailure);
  job_->agent(1).Signal(SIGTERM);
  job_->AwaitLogged(1, "is sent to them");
  job_->agent(1).Signal(SIGTERM);
  job_->ExpectEnd(1, kFailure);
}

TEST_F(LeaveTest, SigtermToAnotherAgentOnly) {
  StartJob();
  FaultNow();
  job_->agent(1).Signal(SIGTERM);
  const int saved = std::max(ExpectSaved(0), ExpectSaved(1));
  job_->ExpectEnd(1, kFailure);
  // The round of the first node alone starts after both workers have saved.
  EXPECT_EQ(job_->AwaitWorld(0, 1), round_ + 1);
  const std::string ready = job_->AwaitPrinted(0, "ready ");
  EXPECT_GE(Field(ready, "at"), saved);
  EXPECT_EQ(Field(ready, "restart"), 0);
}

TEST_F(LeaveTest, DdpctlStop) {
  StartJob();
  FaultNow();
  auto stop = job_->Control(1, {"stop"});
  EXPECT_EQ(stop->Wait(kPatience), ProcessEnd{.code = 0}) << stop->err();
  for (const int host : {0, 1}) ExpectSaved(host);
  for (const int host : {0, 1}) job_->ExpectEnd(host, kFailure);
  ExpectNoOtherRound();
}

// A middlebox resets the connection, so the coordinator counts the node as lost. The node is alive, and its
// worker, which ignores signals, runs until the fence fires. The next round must not start until the fence
// has fired.
TEST_F(LeaveTest, AResetConnectionDoesNotProveThatWorkersAreDead) {
  // The first host's worker exits on SIGTERM; the second host's worker ignores it.
  const std::string worker = WorkerPath();
  StartProgram(
      {"/bin/sh", "-c", "[ $(uname -n) = node0 ] && exec " + worker + "; exec " + worker + " --stubborn"});
  const std::vector<pid_t> old = job_->hosts().Find(1, "worker");
  ASSERT_EQ(old.size(), 1u);
  FaultNow();
  job_->hosts().ResetConnections(1, 0);
  job_->AwaitLogged(0, "event=node_lost");
  EXPECT_EQ(kill(old[0], 0), 0) << "the worker is dead: the fault did not fire";
  job_->AwaitLogged(0, "event=round_started");
  EXPECT_EQ(kill(old[0], 0), -1);
}

// A node whose round trips to the coordinator take a third of a lease must not be counted as lost, either while it
// joins or later.
TEST_F(LeaveTest, ANodeBehindASlowLinkJoinsAndStays) {
  job_ = std::make_unique<HostJob>(2, Args{"--nnodes=2", "--nproc-per-node=1", "--max-restarts=3"},
                                   Args{WorkerPath()});
  job_->Start(0);
  job_->AwaitLogged(0, "1/2 nodes joined");
  const auto relay = job_->hosts().Start(
      1, {SlowRelayPath(), job_->hosts().address(0), "29400", std::to_string(ToMillis(kLease) / 6)});
  const std::vector<std::string> port = relay->AwaitOut("");
  ASSERT_EQ(port.size(), 1u) << relay->err();
  FaultNow();
  const TimePoint begin = std::chrono::steady_clock::now();
  job_->Start(1, {"--rdzv-endpoint=127.0.0.1:" + port[0], "--local-addr=" + job_->hosts().address(1),
                  "--rdzv-conf=last_call_timeout=1,is_host=0,lease_ms=" + std::to_string(ToMillis(kLease))});
  EXPECT_EQ(job_->AwaitWorld(1, 2), 0);
  // Proves that the link is slow: a node needs several round trips to connect, join and start.
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kLease);
  for (const int host : {0, 1}) job_->AwaitPrinted(host, "ready ");
  EXPECT_THAT(job_->agent(1).AwaitErr("joins again", 1, 4 * kLease), IsEmpty()) << job_->agent(1).err();
  EXPECT_THAT(job_->agent(0).err(), Not(HasSubstr("event=round_ended")));
}

}  // namespace
}  // namespace ddprun
