// `train --in-place`. The test plays the agents; tests/fault/in_place_test.cc has the real ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "examples/train/metrics.h"
#include "tests/train/job.h"
#include "worker_sdk/testing/fake_launcher.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::Not;
using Flags = std::vector<std::string>;

constexpr int kSteps = 3000;

Flags operator+(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

std::string ReadAll(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = text.rfind('\n', end);
  return end == std::string::npos ? "" : text.substr(begin + 1, end - begin);
}

class InPlaceTest : public testing::Test {
 protected:
  // Trains with the ranks of `split`. `meanwhile` may kill them. The output of rank r is in out(r).
  void Run(const std::vector<int>& split, const Flags& more,
           const std::function<void(FakeLauncher&)>& meanwhile) {
    const Flags shell = {"/bin/sh", "-c",
                         "exec \"$0\" \"$@\" >>" + dir_ + "/out.$RANK 2>>" + dir_ + "/err.$RANK",
                         ProgramPath("examples/train/train")};
    launcher_.emplace(
        split, Flags{},
        shell + TinyModel(/*log_every=*/100) + Flags{"--in-place", "--metrics=" + metrics_} + more);
    ASSERT_EQ(launcher_->Run(seconds(120), [&] { meanwhile(*launcher_); }), "") << Errors();
  }
  std::string out(int rank) const { return ReadAll(dir_ + "/out." + std::to_string(rank)); }
  std::string Errors() const {
    std::string all;
    for (int r = 0; r < launcher_->world_size(); ++r) all += ReadAll(dir_ + "/err." + std::to_string(r));
    return all;
  }
  // The line with the hash of the parameters, without the newline.
  std::string Undisturbed(int world_size, int steps = kSteps) {
    Flags flags = TinyModel(/*log_every=*/100);
    flags.push_back("--steps=" + std::to_string(steps));
    return LastLine(Train({.world_size = world_size}, flags));
  }
  // No step was repeated, and all were done. If rank 0 died, its last line may be missing.
  void ExpectNoStepIsLost(int steps = kSteps) {
    const std::vector<train::StepMetrics> all = train::ReadMetrics(metrics_).value();
    ASSERT_FALSE(all.empty());
    for (size_t i = 1; i < all.size(); ++i) {
      ASSERT_LT(all[i - 1].step, all[i].step) << "in round " << all[i].round;
      ASSERT_LE(all[i].step - all[i - 1].step, 2) << "in round " << all[i].round;
    }
    EXPECT_EQ(all.back().step, steps);
  }
  int NumStarts() const {
    int num = 0;
    for (int r = 0; r < launcher_->world_size(); ++r) num += launcher_->num_starts(r);
    return num;
  }

  const std::string dir_ = MakeTestDirectory(), metrics_ = dir_ + "/metrics";
  std::optional<FakeLauncher> launcher_;
};

TEST_F(InPlaceTest, EachRankIsKilledAgainAndAgain) {
  int num_killed = 0;
  int64_t next_step = 100;
  Run({2, 1}, {"--steps=" + std::to_string(kSteps)}, [&](FakeLauncher& job) {
    const int victim = num_killed % 3;
    if (num_killed == 15 || !job.report(0) || job.report(0)->step < next_step || job.pid(victim) == 0) return;
    next_step = job.report(0)->step + 50;
    ++num_killed;
    kill(job.pid(victim), SIGKILL);
  });
  EXPECT_EQ(launcher_->num_killed(), 15);
  EXPECT_EQ(launcher_->round(), FakeLauncher::kFirstRound + 15);
  EXPECT_EQ(NumStarts(), 3 + 15) << "only those that were killed start again";
  EXPECT_EQ(LastLine(out(0)), Undisturbed(3));
  EXPECT_THAT(out(0), HasSubstr("in_place=yes"));
  ExpectNoStepIsLost();
}

TEST_F(InPlaceTest, RankZeroThatIsNewTakesOverTheSnapshots) {
  const std::string snapshots = dir_ + "/snapshots";
  bool killed = false, asked = false;
  Run({2}, {"--steps=" + std::to_string(kSteps), "--snapshot-dir=" + snapshots, "--snapshot-every=700"},
      [&](FakeLauncher& job) {
        if (!job.report(0)) return;
        if (!killed && job.report(0)->snapshot_step == 700) {
          killed = true;
          kill(job.pid(0), SIGKILL);
        } else if (killed && !asked && job.round() > FakeLauncher::kFirstRound) {
          asked = true;
          job.AskForSnapshot();
        }
      });
  EXPECT_EQ(launcher_->num_killed(), 1);
  EXPECT_EQ(NumStarts(), 3);
  EXPECT_THAT(out(0), Not(HasSubstr("event=resume"))) << "no snapshot is read";
  EXPECT_EQ(LastLine(out(0)), Undisturbed(2));
  EXPECT_THAT(ReadAll(snapshots + "/claim"), testing::ContainsRegex("\"round\": ?8"));
  EXPECT_EQ(Errors(), "");
  ExpectNoStepIsLost();
  EXPECT_THAT(out(0), HasSubstr(" restarts")) << "the ledger has both rounds";
}

TEST_F(InPlaceTest, IfAllRanksDieASnapshotIsRead) {
  const std::string snapshots = dir_ + "/snapshots";
  bool killed = false;
  Run({2}, {"--steps=" + std::to_string(kSteps), "--snapshot-dir=" + snapshots, "--snapshot-every=700"},
      [&](FakeLauncher& job) {
        if (killed || !job.report(0) || job.report(0)->snapshot_step != 700) return;
        killed = true;
        for (const int r : {0, 1}) kill(job.pid(r), SIGKILL);
      });
  EXPECT_EQ(launcher_->num_killed(), 2);
  EXPECT_THAT(out(0), HasSubstr("event=resume step=700"));
  EXPECT_EQ(LastLine(out(0)), Undisturbed(2));
}

TEST_F(InPlaceTest, WithoutAnAgentItTrainsAsEver) {
  Flags flags = TinyModel(/*log_every=*/100);
  flags.push_back("--steps=50");
  const std::string expected = Train({.world_size = 2}, flags);
  flags.push_back("--in-place");
  EXPECT_EQ(Train({.world_size = 2}, flags), expected);
  EXPECT_EQ(Train({.world_size = 1}, flags), expected);
}

}  // namespace
}  // namespace ddprun
