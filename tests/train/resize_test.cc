// Nodes join and leave a training job under the real launcher. Every sample of an epoch is used exactly once,
// for any number of workers.
#include <signal.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "examples/train/sample_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/train/job.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

using testing::Each;
using testing::ElementsAre;
using train::SampleUse;

constexpr int64_t kSamples = 1001;  // not a multiple of kBatch, so some steps use two epochs
constexpr int kContext = 16;
constexpr int kBatch = 10;  // 4, 3 and 3 samples for three workers

// Sample uses by step and rank.
using Executions = std::map<int64_t, std::map<int, SampleUse>>;

// Returns the sample uses of each step's last execution. Fails the test if a rank occurs twice in a step.
Executions LastExecutions(const std::vector<SampleUse>& uses) {
  std::map<int64_t, int64_t> last_round;
  for (const SampleUse& use : uses) {
    last_round[use.step] = std::max(last_round[use.step], use.round);
  }
  Executions executions;
  for (const SampleUse& use : uses) {
    if (use.round != last_round[use.step]) continue;
    EXPECT_TRUE(executions[use.step].emplace(use.rank, use).second)
        << "step " << use.step << " twice by rank " << use.rank << " of round " << use.round;
  }
  return executions;
}

// Returns the world size of each round, in the order of rounds.
std::vector<int> WorldSizes(const std::vector<SampleUse>& uses) {
  std::map<int64_t, std::set<int>> by_round;
  for (const SampleUse& use : uses) by_round[use.round].insert(use.world_size);
  std::vector<int> sizes;
  for (const auto& [round, all] : by_round) {
    EXPECT_EQ(all.size(), 1) << "round " << round;
    sizes.push_back(*all.begin());
  }
  return sizes;
}

class ResizeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < kSamples * kContext + 1; ++i) text += static_cast<char>('a' + i * i % 23);
    ASSERT_TRUE(WriteFile(directory_ + "/text", text).ok());
  }

  // Starts the node that hosts the coordinator and rank 0.
  void StartFirst() {
    Start({ddprun_, "--nnodes=1:3", "--nproc-per-node=1", ProgramPath("examples/train/train"),
           "--data=" + directory_ + "/text", "--layers=1", "--heads=2", "--width=16",
           "--context=" + std::to_string(kContext), "--global-batch=" + std::to_string(kBatch),
           "--steps=1000000000", "--snapshot-dir=" + directory_ + "/snapshots", "--snapshot-every=20",
           "--sample-log=" + SampleDirectory(), "--log-every=50"});
    const std::optional<std::string> line = first().AwaitErrLine(kJoinWith);
    ASSERT_TRUE(line) << AgentErrors();
    join_ = line->substr(line->find(kJoinWith) + kJoinWith.size());
  }
  // Starts another node with the command that the first node has printed.
  Child& Join() { return Start({"/bin/sh", "-c", "exec " + join_}); }
  Child& first() { return *agents_[0]; }
  // Waits until a round of `world_size` workers has done at least a hundred steps. Returns the last step that
  // was reported; 0 on timeout.
  int64_t TrainWith(int world_size) {
    if (!first().AwaitLine("world_size=" + std::to_string(world_size) + " ")) return 0;
    std::optional<std::string> line;
    for (int i = 0; i < 3; ++i) {
      if (!(line = first().AwaitLine(" loss="))) return 0;
    }
    return std::stoll(line->substr(line->find("step=") + 5));
  }
  // Returns the standard error of all agents so far.
  std::string AgentErrors() {
    std::string all;
    for (size_t i = 0; i < agents_.size(); ++i) {
      agents_[i]->AwaitErrLine("\n", milliseconds(1));  // reads the available output
      all += "agent " + std::to_string(i) + ":\n" + agents_[i]->err();
    }
    return all;
  }
  std::string SampleDirectory() const { return directory_ + "/samples"; }

  const std::string kJoinWith = "other nodes join with: ";
  const std::string directory_ = MakeTestDirectory();
  const std::string ddprun_ = ProgramPath("launcher/ddprun");
  const Environment environment_ = {{"PATH", ddprun_.substr(0, ddprun_.rfind('/')) + ":/usr/bin:/bin"},
                                    {"TMPDIR", directory_}};
  std::vector<std::unique_ptr<Child>> agents_;
  std::string join_;

 private:
  Child& Start(const std::vector<std::string>& argv) {
    return *agents_.emplace_back(std::make_unique<Child>(argv, environment_));
  }
};

TEST_F(ResizeTest, EverySampleOfAnEpochIsUsedOnce) {
  StartFirst();
  ASSERT_GT(TrainWith(1), 0) << AgentErrors();
  Join();
  Child& third = Join();
  ASSERT_GT(TrainWith(3), 0) << AgentErrors();
  third.Signal(SIGKILL);  // the warden then kills the node's worker
  ASSERT_GT(TrainWith(2), 0) << AgentErrors();
  Join();
  const int64_t steps = TrainWith(3);
  ASSERT_GT(steps, 0) << AgentErrors();
  for (const auto& agent : agents_) agent->Signal(SIGTERM);
  for (const auto& agent : agents_) ASSERT_TRUE(agent->Wait()) << AgentErrors();

  const std::vector<SampleUse> uses = train::ReadSampleLogs(SampleDirectory()).value();
  EXPECT_THAT(WorldSizes(uses), ElementsAre(1, 3, 2, 3));

  const Executions executions = LastExecutions(uses);
  std::map<int64_t, std::vector<int>> counts;  // epoch -> how often each sample was used
  int64_t place = 0;                           // in the sequence of all epochs
  for (int64_t step = 1; step <= steps; ++step) {
    ASSERT_TRUE(executions.contains(step)) << step;
    const std::map<int, SampleUse>& by_rank = executions.at(step);
    ASSERT_EQ(by_rank.size(), by_rank.begin()->second.world_size) << "step " << step;
    for (const auto& [rank, use] : by_rank) {
      ASSERT_EQ(use.epoch, place / kSamples) << "step " << step << ", rank " << rank;
      ASSERT_EQ(use.position, place % kSamples) << "step " << step << ", rank " << rank;
      for (const int64_t sample : use.samples) {
        std::vector<int>& count = counts[place++ / kSamples];
        count.resize(kSamples);
        ASSERT_LT(sample, kSamples);
        ++count[sample];
      }
    }
    ASSERT_EQ(place, step * kBatch) << "the global batch must not change";
  }
  ASSERT_GE(counts.size(), 3) << "too few steps for two whole epochs";
  for (const auto& [epoch, count] : counts) {
    SCOPED_TRACE("epoch " + std::to_string(epoch));
    if (epoch < place / kSamples) {
      EXPECT_THAT(count, Each(1));
    } else {
      EXPECT_THAT(count, Each(testing::Le(1)));
    }
  }
}

}  // namespace
}  // namespace ddprun
