// Jobs with a register on a real etcd: the loss of the coordinator, whatever its cause, does not end the job.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/etcd.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

const ProcessEnd kSuccess{.code = 0};
const ProcessEnd kFailure{.code = 1};
const ProcessEnd kKilled{.signal = SIGKILL};
constexpr Duration kLease = milliseconds(2000);

// Two agents with one worker each. The first one leads.
class TakeoverTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why_not = EtcdServer::WhyNot();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
    AdoptOrphans();
    etcd_ = std::make_unique<EtcdServer>();
  }

  std::unique_ptr<Process> StartAgent(const Args& more = {}, const Args& worker = {}) {
    const Args argv = Args{DdprunPath(),
                           "--nnodes=1:2",
                           "--rdzv-backend=etcd",
                           "--rdzv-endpoint=" + etcd_->endpoint(),
                           "--rdzv-id=j",
                           "--rdzv-conf=last_call_timeout=1,lease_ms=" + std::to_string(ToMillis(kLease)),
                           "--shutdown-timeout=5"} +
                      more + Args{WorkerPath(), gate_.flag(), "--family"} + worker;
    return std::make_unique<Process>(argv, Stdio::kPipes, Environment{{"LOGLEVEL", "INFO"}});
  }
  // Waits for the worker's line, and expects these values in it.
  void ExpectReady(Process& agent, int rank, int world_size, int round) {
    const std::vector<std::string> lines = agent.AwaitOut("ready ");
    ASSERT_THAT(lines, SizeIs(1)) << agent.out() << agent.err();
    EXPECT_EQ(Field(lines[0], "rank"), rank) << agent.err();
    EXPECT_EQ(Field(lines[0], "world_size"), world_size) << agent.err();
    EXPECT_EQ(Field(lines[0], "round"), round) << agent.err();
    EXPECT_EQ(Field(lines[0], "restart"), 0) << agent.err();
  }
  void StartBoth() {
    first_ = StartAgent();
    ExpectReady(*first_, 0, 1, 0);
    second_ = StartAgent();
    ExpectReady(*first_, 0, 2, 1);
    ExpectReady(*second_, 1, 2, 1);
    ASSERT_THAT(first_->err(), HasSubstr("event=lead_begun"));
    ASSERT_THAT(second_->err(), Not(HasSubstr("event=lead_begun")));
    first_traces_ = TracesOf(first_->mark());
  }
  // Runs ddpctl, expects this exit code, and returns its output.
  std::string Ctl(const Args& args, int code) {
    if (ddpctl_.empty()) {
      ddpctl_ = MakeTestDirectory() + "/ddpctl";
      std::filesystem::create_symlink(DdprunPath(), ddpctl_);
    }
    const bool names_job = args.size() > 1;
    Process process(Args{ddpctl_} + args +
                    Args{"--rdzv-backend=etcd", "--rdzv-endpoint=" + etcd_->endpoint()} +
                    (names_job ? Args{} : Args{"--job=j"}));
    EXPECT_EQ(process.Wait(), ProcessEnd{.code = code}) << process.err();
    return process.out() + process.err();
  }
  std::vector<std::string> LeftOfFirst() { return LeftOf(first_traces_, first_->mark(), Others()); }
  std::vector<pid_t> Others() const { return {second_->pid(), etcd_->pid()}; }
  void Finish(const std::vector<Process*>& agents) {
    gate_.Open();
    for (Process* agent : agents) EXPECT_EQ(agent->Wait(), kSuccess) << agent->err();
  }

  Gate gate_;
  std::unique_ptr<EtcdServer> etcd_;
  std::unique_ptr<Process> first_, second_;
  Traces first_traces_;
  std::string ddpctl_;
};

TEST_F(TakeoverTest, TheAgentOfTheCoordinatorIsKilled) {
  StartBoth();
  first_->Signal(SIGKILL);
  EXPECT_EQ(first_->Wait(), kKilled);
  ExpectReady(*second_, 0, 1, 2);
  EXPECT_THAT(second_->err(),
              AllOf(HasSubstr("event=lead_begun"), HasSubstr("the last coordinator has exited")));
  EXPECT_THAT(LeftOfFirst(), IsEmpty());
  // A new agent finds the new coordinator.
  first_ = StartAgent();
  ExpectReady(*second_, 0, 2, 3);
  ExpectReady(*first_, 1, 2, 3);
  Finish({first_.get(), second_.get()});
}

TEST_F(TakeoverTest, TheAgentOfTheCoordinatorGetsASignal) {
  StartBoth();
  first_->Signal(SIGTERM);
  ExpectReady(*second_, 0, 1, 2);
  EXPECT_THAT(second_->err(), AllOf(HasSubstr("the coordinator moves to another host"),
                                    HasSubstr("event=lead_begun"), HasSubstr("handed over")));
  EXPECT_EQ(first_->Wait(), kFailure);
  EXPECT_THAT(LeftOfFirst(), IsEmpty());
  Finish({second_.get()});
}

TEST_F(TakeoverTest, ASecondSignalToTheAgentOfTheCoordinatorSkipsTheWait) {
  first_ = StartAgent();
  ExpectReady(*first_, 0, 1, 0);
  second_ = StartAgent({}, {"--stubborn"});
  ExpectReady(*first_, 0, 2, 1);
  ExpectReady(*second_, 1, 2, 1);
  first_->Signal(SIGTERM);
  ASSERT_THAT(second_->AwaitErr("stopping the workers of round 1"), SizeIs(1)) << second_->err();
  first_->Signal(SIGTERM);
  EXPECT_THAT(first_->AwaitErr("not waiting for the workers of other nodes"), SizeIs(1)) << first_->err();
  EXPECT_EQ(first_->Wait(), kFailure);
  ExpectReady(*second_, 0, 1, 2);
  EXPECT_THAT(second_->err(), Not(HasSubstr("handed over")));
  Finish({second_.get()});
}

TEST_F(TakeoverTest, DdpctlFindsTheCoordinator) {
  StartBoth();
  EXPECT_THAT(Ctl({"status"}, 0), AllOf(HasSubstr("job j"), HasSubstr("round 1")));
  first_->Signal(SIGKILL);
  EXPECT_EQ(first_->Wait(), kKilled);
  ExpectReady(*second_, 0, 1, 2);
  EXPECT_THAT(Ctl({"status"}, 0), HasSubstr("round 2"));
  EXPECT_THAT(Ctl({"stop"}, 0), HasSubstr("job j is being stopped on 1 node"));
  EXPECT_EQ(second_->Wait(), kFailure);
  EXPECT_THAT(Ctl({"status"}, 3), HasSubstr("job j is over: "));
  EXPECT_THAT(Ctl({"status", "--job=other"}, 3), HasSubstr("there is no job other on etcd at "));
}

TEST_F(TakeoverTest, AnotherAgentIsKilled) {
  StartBoth();
  second_->Signal(SIGKILL);
  EXPECT_EQ(second_->Wait(), kKilled);
  ExpectReady(*first_, 0, 1, 2);
  Finish({first_.get()});
}

TEST_F(TakeoverTest, TheAgentOfTheCoordinatorIsStoppedPastItsLeaseAndContinued) {
  StartBoth();
  first_->Signal(SIGSTOP);
  ExpectReady(*second_, 0, 1, 2);
  first_->Signal(SIGCONT);
  ExpectReady(*second_, 0, 2, 3);
  ExpectReady(*first_, 1, 2, 3);
  EXPECT_THAT(first_->err(), HasSubstr("event=lead_lost"));
  Finish({first_.get(), second_.get()});
}

TEST_F(TakeoverTest, EachOfTwoAgentsInTurn) {
  StartBoth();
  for (int round = 2; round < 8; round += 2) {
    first_->Signal(SIGKILL);
    EXPECT_EQ(first_->Wait(), kKilled);
    ExpectReady(*second_, 0, 1, round);
    first_ = StartAgent();
    ExpectReady(*second_, 0, 2, round + 1);
    ExpectReady(*first_, 1, 2, round + 1);
    std::swap(first_, second_);
  }
  Finish({first_.get(), second_.get()});
}

TEST_F(TakeoverTest, AShortPauseOfEtcdChangesNothing) {
  StartBoth();
  etcd_->Stop();
  EXPECT_THAT(first_->AwaitErr("event=lead_lost", 1, kLease / 2), IsEmpty());
  etcd_->Continue();
  Finish({first_.get(), second_.get()});
  EXPECT_THAT(first_->err(), Not(HasSubstr("event=lead_lost")));
  EXPECT_THAT(second_->err(), Not(HasSubstr("event=lead_begun")));
}

TEST_F(TakeoverTest, TheJobWaitsForAnEtcdThatIsAwayForLong) {
  StartBoth();
  etcd_->Kill();
  EXPECT_THAT(first_->AwaitErr("the register of the job: "), SizeIs(1)) << first_->err();
  ASSERT_THAT(first_->AwaitErr("event=lead_lost"), SizeIs(1)) << first_->err();
  etcd_->StartAgain();
  // Either of them may lead now. It waits for the other one for half a lease, and does not wait for the node of the last leader.
  const std::vector<std::string> first = first_->AwaitOut("world_size=2 "),
                                 second = second_->AwaitOut("world_size=2 ");
  ASSERT_THAT(first, SizeIs(1)) << first_->err();
  ASSERT_THAT(second, SizeIs(1)) << second_->err();
  EXPECT_EQ(Field(first[0], "rank") + Field(second[0], "rank"), 1);
  EXPECT_EQ(Field(second[0], "restart"), 0);
  Finish({first_.get(), second_.get()});
}

TEST_F(TakeoverTest, AJobThatIsOverIsNotStartedAgain) {
  first_ = StartAgent();
  ExpectReady(*first_, 0, 1, 0);
  Finish({first_.get()});
  second_ = StartAgent();
  EXPECT_EQ(second_->Wait(), kFailure);
  EXPECT_THAT(second_->err(), AllOf(HasSubstr("job j is over"), HasSubstr("--rdzv-id")));
}

TEST_F(TakeoverTest, AJobThatItsAgentsHaveLeftMayBeStartedAgain) {
  first_ = StartAgent();
  ExpectReady(*first_, 0, 1, 0);
  first_->Signal(SIGTERM);
  EXPECT_EQ(first_->Wait(), kFailure);
  second_ = StartAgent();
  ExpectReady(*second_, 0, 1, 0);
  Finish({second_.get()});
}

TEST_F(TakeoverTest, WithoutEtcdTheErrorNamesIt) {
  etcd_->Kill();
  const auto agent = StartAgent({"--rdzv-conf=read_timeout=1"});
  EXPECT_EQ(agent->Wait(), kFailure);
  EXPECT_THAT(agent->err(),
              AllOf(HasSubstr("found no coordinator of job j within 1 s"), HasSubstr(etcd_->endpoint())));
}

}  // namespace
}  // namespace ddprun
