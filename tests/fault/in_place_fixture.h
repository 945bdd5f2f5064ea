// Jobs of `train --in-place` under `ddprun` on this machine, for the tests of in-place recovery.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "examples/train/metrics.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/read_all.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {

inline constexpr Duration kPatience = seconds(30);
inline const ProcessEnd kSuccess{.code = 0};

inline TimePoint Now() { return std::chrono::steady_clock::now(); }

// The value of a variable of a process; empty if there is none.
inline std::string VariableOf(pid_t pid, const std::string& name) {
  const std::string environ = '\0' + ReadAll("/proc/" + std::to_string(pid) + "/environ");
  const size_t at = environ.find('\0' + name + '=');
  if (at == std::string::npos) return "";
  return environ.c_str() + at + name.size() + 2;
}

// A model whose steps take some milliseconds, so that faults fall into all parts of a step.
//   batch: a power of two for each worker, so that the bits do not depend on the number of workers.
inline Args Model(int steps, int batch) {
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
inline std::string Result(const std::string& out) {
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
    int max_restarts = 100;
    Args options = {};  // of ddprun
    Args flags = {};    // of train
    std::function<Args(Args)> wrap = [](Args program) { return program; };
  };

  void Start(const Setup& setup) {
    AdoptOrphans();
    setup_ = setup;
    program_ = setup.wrap(Model(setup.steps, setup.batch) + Args{"--in-place", "--metrics=" + metrics_} +
                          setup.flags);
    options_ =
        Args{"--max-restarts=" + std::to_string(setup.max_restarts), "--no-python",
             "--log-dir=" + directory_ + "/logs", "--nproc-per-node=" + std::to_string(setup.workers)} +
        setup.options;
    agents_.push_back(StartAgent(Args{"--nnodes=" + setup.nnodes} + options_, program_));
    while (static_cast<int>(agents_.size()) < setup.agents) ASSERT_NO_FATAL_FAILURE(Join());
    AwaitSteps(5, setup.agents * setup.workers);
    for (const auto& agent : agents_) traces_.push_back(TracesOf(agent->mark()));
  }

  // Starts another agent.
  void Join() {
    const std::string before = "other nodes join with: ";
    size_t begin = 0, end = 0;
    Await("the command with which nodes join", [&] {
      begin = agents_[0]->err().find(before);
      end = agents_[0]->err().find('\n', begin);
      return begin != std::string::npos && end != std::string::npos;
    });
    if (HasFatalFailure()) return;
    const std::string command = agents_[0]->err().substr(begin + before.size(), end - begin - before.size());
    agents_.push_back(StartAgent(RendezvousOptions(command) + options_, program_));
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

  std::vector<train::StepMetrics> Metrics() const {
    StatusOr<std::vector<train::StepMetrics>> all = train::ReadMetrics(metrics_);
    return all.ok() ? *std::move(all) : std::vector<train::StepMetrics>();
  }
  int64_t LastRound() const {
    const std::vector<train::StepMetrics> all = Metrics();
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
            const std::vector<train::StepMetrics> all = Metrics();
            return std::ranges::count_if(all, [&](const train::StepMetrics& m) {
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
    EXPECT_THAT(Logs(), testing::Not(testing::HasSubstr("event=resume"))) << "no snapshot is read";
    ExpectNoStepIsLost();
    ExpectNothingIsLeft();
  }
  void ExpectNothingIsLeft() {
    for (size_t i = 0; i < traces_.size(); ++i)
      EXPECT_THAT(LeftOf(traces_[i], agents_[i]->mark()), testing::IsEmpty());
  }
  // No step was done twice. A line may be missing where rank 0 died after a commit.
  void ExpectNoStepIsLost() {
    const std::vector<train::StepMetrics> all = Metrics();
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
  Args options_, program_;
  std::vector<std::unique_ptr<Process>> agents_;
  std::vector<Traces> traces_;
  int num_killed_ = 0;
};

}  // namespace ddprun
