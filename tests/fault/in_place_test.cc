// In-place recovery with the real programs: `train --in-place` under `ddprun`, on this machine. After all faults, the parameters
// equal those of an undisturbed run, no committed step is lost, no snapshot is read, and only lost workers have new processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/train/metrics.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/read_all.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using train::StepMetrics;

constexpr Duration kPatience = seconds(30);
const ProcessEnd kSuccess{.code = 0};

TimePoint Now() { return std::chrono::steady_clock::now(); }

// The value of a variable of a process; empty if there is none.
std::string VariableOf(pid_t pid, const std::string& name) {
  const std::string environ = '\0' + ReadAll("/proc/" + std::to_string(pid) + "/environ");
  const size_t at = environ.find('\0' + name + '=');
  if (at == std::string::npos) return "";
  return environ.c_str() + at + name.size() + 2;
}

// A model whose steps take some milliseconds, so that faults fall into all parts of a step.
//   batch: a power of two for each worker, so that the bits do not depend on the number of workers.
Args Model(int steps, int batch) {
  return {TrainPath(),
          "--layers=2",
          "--heads=2",
          "--width=48",
          "--context=48",
          "--log-every=10000",
          "--cpu=baseline",
          "--steps=" + std::to_string(steps),
          "--global-batch=" + std::to_string(batch)};
}

// The last line that rank 0 prints: the step, the loss and the hash of all parameters.
std::string Result(const std::string& out) {
  const size_t at = out.rfind("step=");
  return at == std::string::npos ? out : out.substr(at, out.find('\n', at) - at);
}

class InPlaceTest : public testing::Test {
 protected:
  struct Setup {
    std::string nnodes = "1";
    int agents = 1;
    int workers = 3;  // of each agent
    int steps = 300;
    int batch = 12;
    Args options = {};  // of ddprun
    Args flags = {};    // of train
    std::function<Args(Args)> wrap = [](Args program) { return program; };
  };

  void Start(const Setup& setup) {
    AdoptOrphans();
    setup_ = setup;
    const Args program = setup.wrap(Model(setup.steps, setup.batch) +
                                    Args{"--in-place", "--metrics=" + metrics_} + setup.flags);
    const Args options = Args{"--max-restarts=100", "--no-python", "--log-dir=" + directory_ + "/logs",
                              "--nproc-per-node=" + std::to_string(setup.workers)} +
                         setup.options;
    agents_.push_back(StartAgent(Args{"--nnodes=" + setup.nnodes} + options, program));
    if (setup.agents > 1) {
      const std::vector<std::string> line = agents_[0]->AwaitErr("other nodes join with: ");
      ASSERT_THAT(line, SizeIs(1)) << agents_[0]->err();
      const Args rendezvous = RendezvousOptions(line[0].substr(line[0].find(": ") + 2));
      while (static_cast<int>(agents_.size()) < setup.agents) {
        agents_.push_back(StartAgent(rendezvous + options, program));
      }
    }
    AwaitSteps(5, setup.agents * setup.workers);
    for (const auto& agent : agents_) traces_.push_back(TracesOf(agent->mark()));
  }

  // The processes of `train` of an agent, by local rank.
  std::map<int, pid_t> WorkersOf(int agent) {
    std::map<int, pid_t> workers;
    for (const auto& [pid, name] : TracesOf(agents_[agent]->mark()).processes) {
      if (name != "train") continue;
      const std::string local_rank = VariableOf(pid, "LOCAL_RANK");
      if (!local_rank.empty()) workers[std::stoi(local_rank)] = pid;
    }
    return workers;
  }
  std::vector<std::map<int, pid_t>> AllWorkers() {
    std::vector<std::map<int, pid_t>> all;
    for (size_t i = 0; i < agents_.size(); ++i) all.push_back(WorkersOf(static_cast<int>(i)));
    return all;
  }

  std::vector<StepMetrics> Metrics() const {
    StatusOr<std::vector<StepMetrics>> all = train::ReadMetrics(metrics_);
    return all.ok() ? *std::move(all) : std::vector<StepMetrics>();
  }
  int64_t LastRound() const {
    const std::vector<StepMetrics> all = Metrics();
    return all.empty() ? -1 : all.back().round;
  }
  std::string Logs() const {
    std::string all;
    for (const auto& agent : agents_) all += agent->err() + agent->out();
    return all;
  }

  // Reads the outputs of all programs until `done`. Fails the test on timeout.
  void Await(const std::string& what, const std::function<bool()>& done) {
    const TimePoint deadline = Now() + kPatience;
    while (!done()) {
      if (Now() > deadline) FAIL() << what << " did not happen\n" << Logs();
      agents_[0]->AwaitErr("a line that no program prints", 1, milliseconds(2));
    }
  }
  // Waits until a round after `round` with `world_size` workers has done `count` steps.
  void AwaitSteps(int count, int world_size, int64_t round = -1) {
    Await(std::to_string(count) + " steps of " + std::to_string(world_size) + " workers after round " +
              std::to_string(round),
          [&] {
            const std::vector<StepMetrics> all = Metrics();
            return std::ranges::count_if(all, [&](const StepMetrics& m) {
                     return m.round > round && m.round == all.back().round && m.world_size == world_size;
                   }) >= count;
          });
  }
  // Kills these workers, waits for the next round, and expects that all others keep their processes.
  void KillAndRecover(const std::vector<std::pair<int, int>>& victims, int steps = 3) {
    std::vector<std::map<int, pid_t>> before = AllWorkers();
    const int64_t round = LastRound();
    for (const auto& [agent, local_rank] : victims) {
      ASSERT_EQ(kill(before[agent].at(local_rank), SIGKILL), 0);
      ++num_killed_;
    }
    AwaitSteps(steps, setup_.agents * setup_.workers, round);
    if (HasFatalFailure()) return;
    std::vector<std::map<int, pid_t>> after = AllWorkers();
    for (const auto& [agent, local_rank] : victims) {
      EXPECT_NE(before[agent].at(local_rank), after[agent].at(local_rank)) << "the fault has not fired";
      before[agent].erase(local_rank);
      after[agent].erase(local_rank);
    }
    EXPECT_EQ(before, after) << "survivors keep their processes";
  }
  // All agents succeed, with the result of an undisturbed run of `world_size` workers; nothing is left.
  void ExpectResult() {
    for (const auto& agent : agents_) EXPECT_EQ(agent->Wait(seconds(60)), kSuccess) << Logs();
    EXPECT_EQ(Result(agents_[0]->out()), Undisturbed());
    EXPECT_THAT(Logs(), Not(HasSubstr("event=resume"))) << "no snapshot is read";
    ExpectNoStepIsLost();
    ExpectNothingIsLeft();
  }
  void ExpectNothingIsLeft() {
    for (size_t i = 0; i < traces_.size(); ++i)
      EXPECT_THAT(LeftOf(traces_[i], agents_[i]->mark()), IsEmpty());
  }
  // No step was done twice. A line may be missing where rank 0 died after a commit.
  void ExpectNoStepIsLost() {
    const std::vector<StepMetrics> all = Metrics();
    for (size_t i = 1; i < all.size(); ++i) {
      EXPECT_LT(all[i - 1].step, all[i].step) << "in round " << all[i].round;
      EXPECT_LE(all[i].step - all[i - 1].step, all[i].round == all[i - 1].round ? 1 : 2);
    }
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(all.back().step, setup_.steps);
  }
  // The result of the same workers without a fault, in one process tree of its own.
  std::string Undisturbed() {
    const auto agent = StartAgent(
        {"--standalone", "--no-python", "--nproc-per-node=" + std::to_string(setup_.agents * setup_.workers)},
        Model(setup_.steps, setup_.batch));
    EXPECT_EQ(agent->Wait(seconds(60)), kSuccess) << agent->err();
    return Result(agent->out());
  }

  const std::string directory_ = MakeTestDirectory();
  const std::string metrics_ = directory_ + "/metrics";
  Setup setup_;
  std::vector<std::unique_ptr<Process>> agents_;
  std::vector<Traces> traces_;
  int num_killed_ = 0;
};

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

// A node is drained: nobody has died, and the other node's workers go on alone.
TEST_F(InPlaceTest, Drain) {
  Start({.nnodes = "1:2", .agents = 2, .workers = 2, .batch = 16});
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
