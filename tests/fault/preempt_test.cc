// Notices of pre-emption: nodes that are announced to go away. The workers stop after a snapshot of the same step, the node leaves,
// and the others go on. No step is lost, and no restart is charged.
#include <signal.h>

#include <chrono>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const ProcessEnd kRequeue{.code = 75};
const ProcessEnd kSuccess{.code = 0};

class PreemptTest : public TrainingTest {
 protected:
  // Starts a training whose agents take SIGUSR1 as a notice of `notice` seconds.
  void StartWithNotice(Setup setup, int world_size = 0, const std::string& notice = "20") {
    setup.options = setup.options + Args{"--preempt-signal=SIGUSR1@" + notice, "--exit-codes=scheduler"};
    StartTraining(setup, world_size);
  }
  void Notify(int host) { job().agent(host).Signal(SIGUSR1); }
  // Waits until the workers have stopped. Returns the step.
  int AwaitStop() {
    const int step = Field(job().AwaitPrinted(0, "event=stopped"), "step");
    EXPECT_GT(step, 0);
    return step;
  }
  void ExpectResume(int step) {
    EXPECT_THAT(job().AwaitPrinted(0, "event=resume"), HasSubstr("step=" + std::to_string(step) + " "));
  }
};

TEST_F(PreemptTest, OneOfThreeNodes) {
  StartWithNotice({.max = 3, .more_options = {{2, {"--nproc-per-node=2"}}}}, 4);
  FaultNow();
  Notify(2);
  job().AwaitLogged(2, "received SIGUSR1: this node goes away in 20 s");
  const int step = AwaitStop();
  EXPECT_THAT(job().AwaitLogged(0, "event=round_ended"), HasSubstr("is pre-empted: received SIGUSR1"));
  Detected(job().agent(0).found_at());
  job().AwaitWorld(0, 2);
  Recovered(job().agent(0).found_at());
  ExpectResume(step);
  job().ExpectEnd(2, kRequeue);
  ExpectResult({0, 1});
  EXPECT_THAT(job().agent(0).err(), Not(HasSubstr("restart_count=\"1\"")));
}

// The job is queued again, and goes on where it has stopped.
TEST_F(PreemptTest, AllNodes) {
  StartWithNotice({});
  FaultNow();
  Notify(1);
  Notify(0);
  const int step = AwaitStop();
  for (const int host : {0, 1}) job().agent(host).FreeOut();
  for (const int host : {0, 1}) job().ExpectEnd(host, kRequeue);
  EXPECT_THAT(job().agent(0).err(), Not(HasSubstr("event=workers_failed")));
  StartHost(0);
  job().AwaitLogged(0, "event=node_joined");
  StartHost(1);
  ExpectResume(step);
  ExpectResult({0, 1});
}

TEST_F(PreemptTest, TheNodeOfTheCoordinator) {
  StartWithNotice({.options = {"--quorum=none"}});
  FaultNow();
  Notify(0);
  const int step = AwaitStop();
  for (const int host : {0, 1}) job().agent(host).FreeOut();
  for (const int host : {0, 1}) job().ExpectEnd(host, kRequeue);
  EXPECT_THAT(job().agent(1).err(), HasSubstr("hosts the coordinator"));
  EXPECT_THAT(job().agent(0).out(), HasSubstr("event=stopped step=" + std::to_string(step)));
}

// Too few nodes are left, and the one that was announced to come back is waited for.
TEST_F(PreemptTest, ANodeThatComesBack) {
  StartWithNotice({.min = 2});
  FaultNow();
  const auto control =
      job().Control(0, {"preempt", "node1", "--deadline=20s", "--back-in=30s", "--reason=new firmware"});
  EXPECT_EQ(control->Wait(), kSuccess) << control->err();
  EXPECT_THAT(control->out(), HasSubstr("node1"));
  const int step = AwaitStop();
  job().ExpectEnd(1, kRequeue);
  EXPECT_THAT(job().AwaitLogged(0, "waiting for node1"), HasSubstr("pre-empted"));
  StartHost(1);
  AwaitWorldOf({0, 1});
  ExpectResume(step);
  ExpectResult({0, 1});
  EXPECT_THAT(job().agent(0).err(), Not(HasSubstr("restart_count=\"1\"")));
}

// The worker of the other node does not exit, and ignores SIGTERM. The snapshot stands.
TEST_F(PreemptTest, AWorkerThatDoesNotExit) {
  StartWithNotice(
      {.shell = "[ $RANK.$DDPRUN_ROUND = 1.0 ] && { trap '' TERM; \"$@\"; echo hangs; sleep 1000; }"}, 0,
      "5");
  FaultNow();
  const TimePoint noticed = std::chrono::steady_clock::now();
  Notify(1);
  const int step = AwaitStop();
  job().AwaitPrinted(1, "hangs");
  job().ExpectEnd(1, kRequeue);
  EXPECT_LT(std::chrono::steady_clock::now() - noticed, seconds(5));
  EXPECT_THAT(job().agent(1).err(), HasSubstr("before the end of the notice: sending SIGKILL"));
  job().AwaitWorld(0, 1);
  ExpectResume(step);
  ExpectResult({0});
}

// A second notice brings the end forward.
TEST_F(PreemptTest, TwoNotices) {
  StartWithNotice(
      {.options = {}, .shell = "[ $RANK.$DDPRUN_ROUND = 1.0 ] && { trap '' TERM; \"$@\"; sleep 1000; }"}, 0,
      "600");
  FaultNow();
  Notify(1);
  AwaitStop();
  const auto control = job().Control(0, {"preempt", "node1", "--deadline=3s"});
  EXPECT_EQ(control->Wait(), kSuccess) << control->err();
  job().ExpectEnd(1, kRequeue);
  job().AwaitWorld(0, 1);
  ExpectResult({0});
}

class NoticeTest : public HostFaultTest {
 protected:
  static Args Options(const std::string& notice) {
    return {"--preempt-signal=SIGUSR1@" + notice, "--exit-codes=scheduler", "--max-restarts=0"};
  }
  Gate gate_;
};

// Workers that know nothing of notices are stopped in time.
TEST_F(NoticeTest, WorkersThatIgnoreIt) {
  HostJob job(2, Args{"--nnodes=1:2"} + Options("4"), {WorkerPath(), gate_.flag(), "--stubborn"});
  for (const int host : {0, 1}) job.Start(host);
  for (const int host : {0, 1}) job.AwaitWorld(host, 2);
  FaultNow();
  const TimePoint noticed = std::chrono::steady_clock::now();
  job.agent(1).Signal(SIGUSR1);
  job.ExpectEnd(1, kRequeue);
  EXPECT_LT(std::chrono::steady_clock::now() - noticed, seconds(4));
  job.AwaitWorld(0, 1);
  gate_.Open();
  job.ExpectEnd(0, kSuccess);
}

// The scheduler sends the signal to all processes of the node, the agent first. The workers' ends are neither failures nor the end of
// the job.
TEST_F(NoticeTest, TheSignalReachesTheWorkersToo) {
  HostJob job(2, {"--nnodes=1:2", "--preempt-signal=SIGTERM", "--exit-codes=scheduler", "--max-restarts=0"},
              {"/bin/sh", "-c", "echo ready; exec sleep 1000"});
  for (const int host : {0, 1}) job.Start(host);
  for (const int host : {0, 1}) job.AwaitPrinted(host, "ready");
  FaultNow();
  const std::vector<pid_t> workers = job.hosts().Find(1, "sleep");
  job.agent(1).Signal(SIGTERM);
  for (const pid_t worker : workers) kill(worker, SIGTERM);
  job.ExpectEnd(1, kRequeue);
  job.AwaitWorld(0, 1);
  job.AwaitPrinted(0, "ready");
  job.agent(0).Signal(SIGTERM);
  job.ExpectEnd(0, kRequeue);
}

TEST_F(NoticeTest, AFailureAfterwardsIsNotCharged) {
  HostJob job(2, Args{"--nnodes=1:2"} + Options("60"), {WorkerPath(), gate_.flag(), "--stubborn"});
  for (const int host : {0, 1}) job.Start(host);
  for (const int host : {0, 1}) job.AwaitWorld(host, 2);
  job.AwaitPrinted(0, "ready ");
  FaultNow();
  job.agent(1).Signal(SIGUSR1);
  job.AwaitLogged(0, "to stop after a snapshot");
  kill(job.hosts().Find(0, "worker").at(0), SIGKILL);
  job.AwaitWorld(0, 1);
  gate_.Open();
  job.ExpectEnd(0, kSuccess);
  job.ExpectEnd(1, kRequeue);
}

TEST_F(NoticeTest, ANodeThatWaitsLeavesAtOnce) {
  HostJob job(2, Args{"--nnodes=3"} + Options("600"), {WorkerPath()});
  for (const int host : {0, 1}) job.Start(host);
  job.AwaitLogged(1, "2/3 nodes joined");
  FaultNow();
  job.agent(1).Signal(SIGUSR1);
  job.ExpectEnd(1, kRequeue);
  EXPECT_THAT(job.AwaitLogged(0, "event=node_preempted"), HasSubstr("received SIGUSR1"));
  job.agent(0).Signal(SIGUSR1);
  job.ExpectEnd(0, kRequeue);
}

}  // namespace
}  // namespace ddprun
