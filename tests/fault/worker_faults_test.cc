// Tests workers that fail, cannot be started, do not exit, or leave processes behind. Two hosts train. After
// a restart the job must end with the parameters of an undisturbed run.
#include <signal.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class WorkerFaultsTest : public TrainingTest {
 protected:
  // Kills a worker with the signal `signo`, called `name` in messages. Expects that the job restarts and
  // succeeds.
  void ExpectRestartAfter(int signo, const std::string& name) {
    StartTraining();
    FaultNow();
    kill(worker(1), signo);
    ExpectFailure(name, 2);
    EXPECT_THAT(job().agent(1).err(), HasSubstr(name));
    ExpectResult({0, 1});
  }
};

TEST_F(WorkerFaultsTest, Sigkill) { ExpectRestartAfter(SIGKILL, "SIGKILL"); }
TEST_F(WorkerFaultsTest, Sigsegv) { ExpectRestartAfter(SIGSEGV, "SIGSEGV"); }
TEST_F(WorkerFaultsTest, Sigabrt) { ExpectRestartAfter(SIGABRT, "SIGABRT"); }

TEST_F(WorkerFaultsTest, ExitCode) {
  Gate gate;
  HostJob job(2, {"--nnodes=2", "--max-restarts=1"},
              {WorkerPath(), gate.flag(), "--fail-in-round=0", "--fail-rank=1"});
  for (const int host : {0, 1}) job.Start(host);
  FaultNow();
  job.AwaitLogged(0, "event=round_ended");
  Detected(job.agent(0).found_at());
  EXPECT_EQ(job.AwaitWorld(0, 2), 1);
  Recovered(job.agent(0).found_at());
  gate.Open();
  for (const int host : {0, 1}) {
    job.ExpectEnd(host, {.code = 0});
    EXPECT_THAT(job.agent(host).err(), HasSubstr("exit code 3"));
  }
}

// Both workers ignore SIGTERM: the worker of the host that leaves, and the worker of the other host, which
// must stop before the next round.
TEST_F(WorkerFaultsTest, SigtermIsIgnored) {
  StartTraining({.options = {"--shutdown-timeout=1"}, .shell = "trap '' TERM"});
  FaultNow();
  job().agent(1).Signal(SIGTERM);
  ExpectChange("its agent received SIGTERM", 1);
  job().ExpectEnd(1, {.code = 1});
  ExpectResult({0});
  // When one worker is killed, the other worker may fail before its own grace period ends.
  EXPECT_THAT(job().agent(0).err() + job().agent(1).err(),
              HasSubstr("did not exit within 1 s: sending SIGKILL"));
}

// Each worker starts processes in separate sessions. These processes must be dead when the next round starts.
TEST_F(WorkerFaultsTest, ChildrenInSeparateSessions) {
  StartTraining({.shell = "setsid sleep 1000 & (setsid sleep 1000 &)"});
  for (const int host : {0, 1}) EXPECT_THAT(hosts().Find(host, "sleep"), SizeIs(2));
  const std::vector<pid_t> before[] = {hosts().Find(0, "sleep"), hosts().Find(1, "sleep")};
  FaultNow();
  kill(worker(1), SIGKILL);
  ExpectFailure("SIGKILL", 2);
  job().AwaitWorld(1, 2);
  for (const int host : {0, 1}) {
    for (const pid_t pid : before[host]) EXPECT_EQ(kill(pid, 0), -1) << pid;
  }
  ExpectResult({0, 1});
}

// Before the restart, a mount hides the program's directory on one host.
TEST_F(WorkerFaultsTest, TheProgramIsMissingAtTheRestart) {
  StartTraining();
  hosts().Run(1, {"/bin/mount", "-t", "tmpfs", "tmpfs", TrainPath().substr(0, TrainPath().rfind('/'))});
  FaultNow();
  kill(worker(0), SIGKILL);
  for (const int host : {0, 1}) {
    job().agent(host).FreeOut();
    job().ExpectEnd(host, {.code = 1});
    EXPECT_THAT(job().agent(host).err(), HasSubstr("no such file")) << host;
    EXPECT_THAT(job().agent(host).err(), HasSubstr("node1")) << host;
  }
}

}  // namespace
}  // namespace ddprun
