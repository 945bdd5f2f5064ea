// Tests jobs of two agents. When one agent is lost, leaves or joins late, the other agent must continue or
// exit as docs/failure_model.md specifies.
#include <signal.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/read_all.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr char kWarden[] = "ddp-warden";
const ProcessEnd kSuccess{.code = 0};
const ProcessEnd kFailure{.code = 1};
const ProcessEnd kKilled{.signal = SIGKILL};

// The "ready" lines of an agent's two workers, by local rank.
using Ready = std::vector<std::string>;

// Waits for the "ready" lines. Fails the test if a line is missing.
Ready AwaitReady(Process& agent) {
  Ready lines = agent.AwaitOut("ready ", 2);
  EXPECT_THAT(lines, SizeIs(2)) << agent.out() << agent.err();
  lines.resize(2);
  if (Field(lines[0], "local_rank") == 1) std::swap(lines[0], lines[1]);
  return lines;
}

std::vector<int> Fields(const Ready& ready, const std::string& name) {
  return {Field(ready[0], name), Field(ready[1], name)};
}

// Returns the arguments of `pid`, separated by spaces.
std::string CommandLine(pid_t pid) {
  std::string text = ReadAll("/proc/" + std::to_string(pid) + "/cmdline");
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

// A job of two agents with two workers each. The first agent hosts the coordinator.
class TwoNodesTest : public testing::Test {
 protected:
  void Start(const Args& options, const Args& worker) {
    AdoptOrphans();
    const Args program = Args{WorkerPath(), gate_.flag()} + worker;
    options_ = options + Args{"--nproc-per-node=2"};
    first_ = StartAgent(Args{"--nnodes=1:2"} + options_, program);
    const std::vector<std::string> line = first_->AwaitErr("other nodes join with: ");
    ASSERT_THAT(line, SizeIs(1)) << first_->err();
    join_line_ = line[0].substr(line[0].find(": ") + 2);
    ASSERT_EQ(Fields(AwaitReady(*first_), "world_size"), (std::vector{2, 2}));
    // The first agent runs round 0 alone. When the second agent joins, both start round 1.
    second_ = StartAgent(RendezvousOptions(join_line_) + options_, program);
    second_ready_ = AwaitReady(*second_);
    first_ready_ = AwaitReady(*first_);
    ASSERT_EQ(Fields(first_ready_, "rank"), (std::vector{0, 1}));
    ASSERT_EQ(Fields(second_ready_, "rank"), (std::vector{2, 3}));
    for (const Ready& ready : {first_ready_, second_ready_}) {
      ASSERT_EQ(Fields(ready, "round"), (std::vector{1, 1}));
      ASSERT_EQ(Fields(ready, "restart"), (std::vector{0, 0}));  // a change of membership costs no restart
    }
    first_traces_ = TracesOf(first_->mark());
    second_traces_ = TracesOf(second_->mark());
    for (const Traces* traces : {&first_traces_, &second_traces_}) {
      ASSERT_EQ(traces->Count("ddprun"), 1);
      ASSERT_GE(traces->Count("worker"), 2);
      ASSERT_THAT(traces->abstract_sockets, Not(IsEmpty()));
    }
    ASSERT_THAT(first_traces_.ports, SizeIs(testing::Ge(2)));  // of the coordinator and the worker store
  }

  std::vector<std::string> LeftOfFirst() { return LeftOf(first_traces_, first_->mark(), {second_->pid()}); }
  std::vector<std::string> LeftOfSecond() { return LeftOf(second_traces_, second_->mark(), {first_->pid()}); }

  // Lets the workers exit with 0 and expects that the job succeeds.
  void Finish(const std::vector<Process*>& agents) {
    gate_.Open();
    for (Process* agent : agents) EXPECT_EQ(agent->Wait(), kSuccess) << agent->err();
  }

  Gate gate_;
  Args options_;
  std::unique_ptr<Process> first_, second_;
  std::string join_line_;
  Ready first_ready_, second_ready_;
  Traces first_traces_, second_traces_;
};

TEST_F(TwoNodesTest, AKilledWorkerCostsTheJobOneRestart) {
  Start({"--max-restarts=2"}, {});
  const int old_port = PortOf(TextField(first_ready_[0], "master"));
  kill(Field(second_ready_[1], "pid"), SIGKILL);
  const Ready first = AwaitReady(*first_), second = AwaitReady(*second_);
  EXPECT_EQ(Fields(first, "rank"), (std::vector{0, 1}));
  EXPECT_EQ(Fields(second, "rank"), (std::vector{2, 3}));
  std::set<std::string> masters;
  for (const Ready& ready : {first, second}) {
    EXPECT_EQ(Fields(ready, "round"), (std::vector{2, 2}));
    EXPECT_EQ(Fields(ready, "restart"), (std::vector{1, 1}));
    EXPECT_EQ(Fields(ready, "world_size"), (std::vector{4, 4}));
    for (const std::string& line : ready) masters.insert(TextField(line, "master"));
  }
  ASSERT_THAT(masters, SizeIs(1));
  EXPECT_NE(PortOf(*masters.begin()), old_port);
  // Checks that none of the old workers is alive.
  for (const Ready& old : {first_ready_, second_ready_}) {
    for (const int pid : Fields(old, "pid")) EXPECT_EQ(kill(pid, 0), -1) << pid;
  }
  Finish({first_.get(), second_.get()});
  // Checked at the end, because the report may arrive after the next round has started.
  EXPECT_THAT(second_->err(), HasSubstr("SIGKILL"));
  EXPECT_THAT(second_->err(), HasSubstr("rank      : 3 (local_rank: 1)"));
  EXPECT_THAT(first_->err(), HasSubstr("rank 3 (local_rank 1)"));
  EXPECT_THAT(first_->err(), HasSubstr("restart 1 of 2"));
  EXPECT_THAT(LeftOfFirst(), IsEmpty());
  EXPECT_THAT(LeftOfSecond(), IsEmpty());
}

TEST_F(TwoNodesTest, JobFailsWhenNoRestartIsLeft) {
  Start({"--max-restarts=1"}, {"--family"});
  kill(Field(second_ready_[0], "pid"), SIGKILL);
  const Ready first = AwaitReady(*first_);
  AwaitReady(*second_);
  EXPECT_EQ(Fields(first, "restart"), (std::vector{1, 1}));
  kill(Field(first[0], "pid"), SIGKILL);
  EXPECT_EQ(first_->Wait(), kFailure);
  EXPECT_EQ(second_->Wait(), kFailure);
  for (const auto* agent : {&first_, &second_}) {
    EXPECT_THAT((*agent)->err(), HasSubstr("all 1 restarts are used up"));
    EXPECT_THAT((*agent)->err(), HasSubstr("rank 0 (local_rank 0)"));
  }
  EXPECT_THAT(LeftOfFirst(), IsEmpty());
  EXPECT_THAT(LeftOfSecond(), IsEmpty());
}

TEST_F(TwoNodesTest, TheFirstAgentContinuesAfterAnotherIsKilled) {
  Start({}, {"--family"});
  second_->Signal(SIGKILL);
  EXPECT_EQ(second_->Wait(), kKilled);
  const Ready first = AwaitReady(*first_);
  EXPECT_EQ(Fields(first, "rank"), (std::vector{0, 1}));
  EXPECT_EQ(Fields(first, "world_size"), (std::vector{2, 2}));
  EXPECT_EQ(Fields(first, "round"), (std::vector{2, 2}));
  EXPECT_EQ(Fields(first, "restart"), (std::vector{0, 0}));
  EXPECT_THAT(LeftOfSecond(), IsEmpty());
  Finish({first_.get()});
  EXPECT_THAT(LeftOfFirst(), IsEmpty());
}

// A node that can no longer start workers leaves the job. This costs no restart.
TEST_F(TwoNodesTest, TheFirstAgentContinuesAfterTheSecondLosesItsWarden) {
  Start({}, {"--family"});
  kill(second_traces_.Find(kWarden), SIGKILL);
  EXPECT_EQ(second_->Wait(), kFailure);
  EXPECT_THAT(second_->err(), HasSubstr("was killed by a signal"));
  const Ready first = AwaitReady(*first_);
  EXPECT_EQ(Fields(first, "world_size"), (std::vector{2, 2}));
  EXPECT_EQ(Fields(first, "restart"), (std::vector{0, 0}));
  EXPECT_THAT(LeftOfSecond(), IsEmpty());
  Finish({first_.get()});
  EXPECT_THAT(LeftOfFirst(), IsEmpty());
}

TEST_F(TwoNodesTest, LosingTheCoordinatorsAgentEndsTheJob) {
  Start({}, {"--family"});
  first_->Signal(SIGKILL);
  EXPECT_EQ(first_->Wait(), kKilled);
  EXPECT_EQ(second_->Wait(), kFailure);
  EXPECT_THAT(second_->err(), HasSubstr("the coordinator is lost"));
  EXPECT_THAT(second_->err(), HasSubstr("Start the job again on all nodes"));
  EXPECT_THAT(LeftOfFirst(), IsEmpty());
  EXPECT_THAT(LeftOfSecond(), IsEmpty());
}

TEST_F(TwoNodesTest, WithoutVotersASignalToTheCoordinatorsAgentEndsTheJob) {
  Start({"--quorum=none"}, {"--family"});
  first_->Signal(SIGINT);
  EXPECT_EQ(first_->Wait(), kFailure);
  EXPECT_EQ(second_->Wait(), kFailure);
  EXPECT_THAT(second_->err(), HasSubstr("the agent that hosts the coordinator is leaving"));
  EXPECT_THAT(LeftOfFirst(), IsEmpty());
  EXPECT_THAT(LeftOfSecond(), IsEmpty());
}

TEST_F(TwoNodesTest, AnAgentThatGetsASignalLeavesAndTheOtherContinues) {
  Start({}, {"--family"});
  second_->Signal(SIGTERM);
  EXPECT_EQ(second_->Wait(), kFailure);
  const Ready first = AwaitReady(*first_);
  EXPECT_EQ(Fields(first, "world_size"), (std::vector{2, 2}));
  EXPECT_EQ(Fields(first, "restart"), (std::vector{0, 0}));
  EXPECT_THAT(first_->err(), HasSubstr("its agent received SIGTERM"));
  EXPECT_THAT(LeftOfSecond(), IsEmpty());
  // Another agent joins in place of the second one.
  second_ = StartAgent(RendezvousOptions(join_line_) + options_, {WorkerPath(), gate_.flag()});
  EXPECT_EQ(Fields(AwaitReady(*second_), "rank"), (std::vector{2, 3}));
  EXPECT_EQ(Fields(AwaitReady(*first_), "world_size"), (std::vector{4, 4}));
  Finish({first_.get(), second_.get()});
  EXPECT_THAT(LeftOfFirst(), IsEmpty());
}

// The second agent is started with the line exactly as the first agent prints it, with ddprun on PATH.
TEST_F(TwoNodesTest, TheJoinLineIsAShellCommand) {
  AdoptOrphans();
  first_ =
      StartAgent({"--nnodes=1:2", "--nproc-per-node=2"}, {WorkerPath(), gate_.flag(), "--note=it's $HOME"});
  const std::vector<std::string> line = first_->AwaitErr("other nodes join with: ");
  ASSERT_THAT(line, SizeIs(1)) << first_->err();
  AwaitReady(*first_);
  const std::string directory = DdprunPath().substr(0, DdprunPath().rfind('/'));
  second_ = std::make_unique<Process>(
      Args{"/bin/sh", "-c", "PATH=" + directory + ":$PATH; exec " + line[0].substr(line[0].find(": ") + 2)});
  const Ready second = AwaitReady(*second_), first = AwaitReady(*first_);
  EXPECT_EQ(Fields(second, "rank"), (std::vector{2, 3}));
  EXPECT_EQ(Fields(first, "world_size"), (std::vector{4, 4}));
  for (const pid_t pid : {Field(first[0], "pid"), Field(second[0], "pid")}) {
    EXPECT_THAT(CommandLine(pid), HasSubstr("--note=it's $HOME"));
  }
  Finish({first_.get(), second_.get()});
}

// The job needs two nodes, and its coordinator runs on neither of them.
TEST_F(TwoNodesTest, TheJobWaitsBelowTheMinimumWithAMessage) {
  AdoptOrphans();
  Process store({DdprunPath(), "--store-only"});
  const std::vector<std::string> port = store.AwaitOut("");
  ASSERT_THAT(port, SizeIs(1)) << store.err();
  const Args options = {"--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=j",
                        "--rdzv-endpoint=127.0.0.1:" + port[0]};
  const Args program = {WorkerPath(), gate_.flag(), "--family"};
  first_ = StartAgent(options, program);
  second_ = StartAgent(options, program);
  AwaitReady(*second_);
  const std::vector<int> workers = Fields(AwaitReady(*first_), "pid");
  first_traces_ = TracesOf(first_->mark());
  second_traces_ = TracesOf(second_->mark());
  ASSERT_EQ(first_traces_.Count("worker"), 2 * 3);
  second_->Signal(SIGKILL);
  EXPECT_EQ(second_->Wait(), kKilled);
  EXPECT_THAT(first_->AwaitErr("1/2 nodes joined, waiting for "), SizeIs(1)) << first_->err();
  EXPECT_TRUE(AwaitEnds(workers));  // no worker continues alone
  EXPECT_THAT(LeftOf(second_traces_, second_->mark(), {first_->pid(), store.pid()}), IsEmpty());
  // Another agent joins.
  second_ = StartAgent(options, program);
  const Ready first = AwaitReady(*first_);
  AwaitReady(*second_);
  EXPECT_EQ(Fields(first, "world_size"), (std::vector{4, 4}));
  EXPECT_EQ(Fields(first, "round"), (std::vector{1, 1}));
  EXPECT_EQ(Fields(first, "restart"), (std::vector{0, 0}));
  Finish({first_.get(), second_.get()});
}

}  // namespace
}  // namespace ddprun
