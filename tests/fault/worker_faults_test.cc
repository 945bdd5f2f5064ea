// Workers that fail, cannot be started, do not exit, or leave processes behind. Two hosts train; after a
// restart the job ends with the parameters of an undisturbed run.
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
  void EndedBy(int signo, const std::string& name) {
    StartTraining();
    FaultNow();
    kill(worker(1), signo);
    ExpectFailure(name, 2);
    EXPECT_THAT(job().agent(1).err(), HasSubstr(name));
    ExpectResult({0, 1});
  }
};

TEST_F(WorkerFaultsTest, Sigkill) { EndedBy(SIGKILL, "SIGKILL"); }
TEST_F(WorkerFaultsTest, Sigsegv) { EndedBy(SIGSEGV, "SIGSEGV"); }
TEST_F(WorkerFaultsTest, Sigabrt) { EndedBy(SIGABRT, "SIGABRT"); }

TEST_F(WorkerFaultsTest, ExitCode) {
  Gate gate;
  HostJob job(2, {"--nnodes=2", "--max-restarts=1"},
              {WorkerPath(), gate.flag(), "--fail-in-round=0", "--fail-rank=1"});
  for (const int host : {0, 1}) job.Start(host);
  FaultNow();
  job.AwaitSaid(0, "event=round_ended");
  Detected(job.agent(0).found_at());
  EXPECT_EQ(job.AwaitWorld(0, 2), 1);
  Recovered(job.agent(0).found_at());
  gate.Open();
  for (const int host : {0, 1}) {
    job.ExpectEnd(host, {.code = 0});
    EXPECT_THAT(job.agent(host).err(), HasSubstr("exit code 3"));
  }
}

// Both workers ignore SIGTERM: that of the host whose agent leaves, and that of the other
// host, which is restarted.
TEST_F(WorkerFaultsTest, SigtermIsIgnored) {
  StartTraining({.options = {"--shutdown-timeout=1"}, .shell = "trap '' TERM"});
  FaultNow();
  job().agent(1).Signal(SIGTERM);
  ExpectChange("its agent received SIGTERM", 1);
  job().ExpectEnd(1, {.code = 1});
  ExpectResult({0});
  // When the first worker is killed, the other one may fail before its own grace period ends.
  EXPECT_THAT(job().agent(0).err() + job().agent(1).err(), HasSubstr("did not end within 1 s: killing"));
}

// Each worker starts processes in separate sessions. Those of a round are dead when the next round starts.
TEST_F(WorkerFaultsTest, ChildrenThatHaveLeftTheirGroup) {
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

// On one host the directory with the program is hidden by another mount before the restart.
TEST_F(WorkerFaultsTest, TheProgramIsGone) {
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
