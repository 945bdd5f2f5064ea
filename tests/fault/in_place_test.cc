// In-place recovery with the real programs: `train --in-place` under `ddprun`, on this machine. After all faults, the parameters
// equal those of an undisturbed run, no committed step is lost, no snapshot is read, and only lost workers have new processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/fault/in_place_fixture.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST_F(InPlaceTest, FiftyKills) {
  Start({.steps = 1000});
  for (int i = 0; i < 50 && !HasFatalFailure(); ++i) KillAndRecover({{0, i % 3}}, /*steps=*/1 + i % 4);
  EXPECT_EQ(num_killed_, 50);
  ExpectResult();
  EXPECT_EQ(Metrics().back().restart, 50);
}

// Of two nodes: rank 0 is the hub of its node, and its node has the store.
TEST_F(InPlaceTest, AnyRank) {
  Start({.nnodes = "1:2", .agents = 2, .workers = 2, .batch = 16});
  for (const int agent : {0, 1}) {
    for (const int local_rank : {0, 1}) KillAndRecover({{agent, local_rank}});
  }
  EXPECT_EQ(num_killed_, 4);
  ExpectResult();
}

TEST_F(InPlaceTest, TwoAtOnce) {
  Start({.nnodes = "1:2", .agents = 2, .workers = 2, .batch = 16});
  KillAndRecover({{0, 0}, {1, 0}});
  KillAndRecover({{0, 0}, {0, 1}});
  ExpectResult();
}

// The program is missing when the joiner is started: that round fails, and the survivors park again.
TEST_F(InPlaceTest, TheJoinerIsMissing) {
  const std::string program = directory_ + "/train";
  std::filesystem::copy_file(TrainPath(), program);
  Start({.wrap = [&](Args args) {
    args[0] = program;
    return args;
  }});
  const std::vector<std::map<int, pid_t>> before = AllWorkers();
  const int64_t round = LastRound();
  std::filesystem::rename(program, program + ".hidden");
  ASSERT_EQ(kill(before[0].at(1), SIGKILL), 0);
  EXPECT_THAT(agents_[0]->AwaitErr("no such file"), SizeIs(1)) << Logs();
  std::filesystem::rename(program + ".hidden", program);
  AwaitSteps(3, 3, round + 1);
  const std::vector<std::map<int, pid_t>> after = AllWorkers();
  for (const int survivor : {0, 2}) EXPECT_EQ(after[0].at(survivor), before[0].at(survivor));
  ExpectResult();
}

// A worker that is stopped is killed after the grace period, and replaced.
TEST_F(InPlaceTest, DoesNotPark) {
  Start({.options = {"--shutdown-timeout=1"}});
  const std::vector<std::map<int, pid_t>> before = AllWorkers();
  const int64_t round = LastRound();
  ASSERT_EQ(kill(before[0].at(1), SIGSTOP), 0);
  ASSERT_EQ(kill(before[0].at(2), SIGKILL), 0);
  AwaitSteps(3, 3, round);
  const std::vector<std::map<int, pid_t>> after = AllWorkers();
  EXPECT_EQ(after[0].at(0), before[0].at(0));
  for (const int lost : {1, 2}) EXPECT_NE(after[0].at(lost), before[0].at(lost));
  ExpectResult();
}

// A node is drained: no node has failed, and the other node's workers go on alone.
TEST_F(InPlaceTest, Drain) {
  // The drain asks for a snapshot if the coordinator already knows of a step.
  Start({.nnodes = "1:2",
         .agents = 2,
         .workers = 2,
         .batch = 16,
         .flags = {"--snapshot-dir=" + directory_ + "/snapshots"}});
  const std::vector<std::map<int, pid_t>> before = AllWorkers();
  const std::string ddpctl = directory_ + "/ddpctl";  // the name selects the program
  std::filesystem::create_symlink(DdprunPath(), ddpctl);
  const std::string line = agents_[0]->err().substr(agents_[0]->err().find("other nodes join with: "));
  Args endpoint;
  for (const std::string& option : RendezvousOptions(line.substr(0, line.find('\n')))) {
    if (option.starts_with("--rdzv-endpoint=")) endpoint.push_back(option);
  }
  ASSERT_THAT(endpoint, SizeIs(1));
  const int64_t round = LastRound();
  // Both agents have the same host name, so the node is given by its id, which has the pid of its agent.
  Process status(Args{ddpctl, "status", "--json"} + endpoint);
  ASSERT_EQ(status.Wait(), kSuccess) << status.err();
  const size_t pid = status.out().find("/" + std::to_string(agents_[1]->pid()) + "/");
  ASSERT_NE(pid, std::string::npos) << status.out();
  const size_t first = status.out().rfind('"', pid) + 1;
  const std::string node = status.out().substr(first, status.out().find('"', pid) - first);
  Process drain(Args{ddpctl, "drain", node} + endpoint);
  ASSERT_EQ(drain.Wait(), kSuccess) << drain.err() << status.out();
  AwaitSteps(3, 2, round);
  EXPECT_EQ(WorkersOf(0), before[0]);
  EXPECT_TRUE(agents_[1]->Wait()) << Logs();
  EXPECT_TRUE(AwaitEnds({before[1].at(0), before[1].at(1)}));
  EXPECT_EQ(agents_[0]->Wait(seconds(60)), kSuccess) << Logs();
  EXPECT_THAT(Logs(), Not(HasSubstr("event=resume")));
  ExpectNoStepIsLost();
  ExpectNothingIsLeft();
}

// Rank 0 parks when it has written the snapshot.
TEST_F(InPlaceTest, WhileASnapshotIsWritten) {
  const std::string snapshots = directory_ + "/snapshots";
  const std::string slow = TestFile("tests/train/libslow_disk.so");
  Start({.steps = 150,
         .flags = {"--snapshot-dir=" + snapshots, "--snapshot-every=100"},
         .wrap = [&](const Args& program) {
           return Args{"/usr/bin/env", "LD_PRELOAD=" + slow} + program;
         }});
  const auto is_writing = [&] {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(snapshots, none)) {
      if (entry.path().filename().string().starts_with(".snapshot-")) return true;
    }
    return false;
  };
  Await("a snapshot", is_writing);
  ASSERT_TRUE(is_writing()) << "the fault must fall into the writing of the snapshot";
  KillAndRecover({{0, 2}});
  ExpectResult();
  EXPECT_TRUE(std::filesystem::exists(snapshots + "/claim"));
}

// A node goes away. The workers of the other one stop after a snapshot, and keep their memory.
TEST_F(InPlaceTest, Notice) {
  Start({.nnodes = "1:2",
         .agents = 2,
         .workers = 2,
         .batch = 16,
         .options = {"--preempt-signal=SIGUSR1@20", "--exit-codes=scheduler"},
         .flags = {"--snapshot-dir=" + directory_ + "/snapshots"}});
  const std::vector<std::map<int, pid_t>> before = AllWorkers();
  const int64_t round = LastRound();
  agents_[1]->Signal(SIGUSR1);
  EXPECT_THAT(agents_[0]->AwaitOut("event=stopped step="), SizeIs(1)) << Logs();
  AwaitSteps(3, 2, round);
  EXPECT_EQ(WorkersOf(0), before[0]);
  EXPECT_EQ(agents_[1]->Wait(), ProcessEnd{.code = 75}) << Logs();
  EXPECT_TRUE(AwaitEnds({before[1].at(0), before[1].at(1)}));
  EXPECT_EQ(agents_[0]->Wait(seconds(60)), kSuccess) << Logs();
  EXPECT_THAT(Logs(), Not(HasSubstr("event=resume")));
  ExpectNoStepIsLost();
  ExpectNothingIsLeft();
}

// The worker is a shell, and the SDK is in a child of it.
TEST_F(InPlaceTest, Wrapped) {
  Start({.wrap = [](const Args& program) {
    return Args{"/bin/sh", "-c", "\"$0\" \"$@\"; exit $?"} + program;
  }});
  KillAndRecover({{0, 1}});
  KillAndRecover({{0, 0}});
  ExpectResult();
}

}  // namespace
}  // namespace ddprun
