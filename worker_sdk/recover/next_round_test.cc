// Recover with processes that survive rounds through Survive and NextRound. The test plays the agents.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/time.h"
#include "ddprun/communicator.h"
#include "ddprun/context.h"
#include "ddprun/data_parallel.h"
#include "ddprun/optim.h"
#include "ddprun/recover.h"
#include "ddprun/status.h"
#include "worker_sdk/context_state.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/ddp/testing/model.h"
#include "worker_sdk/recover/testing/dying_group.h"
#include "worker_sdk/testing/fake_launcher.h"

namespace ddprun {
namespace {

constexpr int kFirstRound = FakeLauncher::kFirstRound;
constexpr int64_t kSteps = 5;
constexpr int64_t kCounts[] = {3, 500, 70};
// Operations of round 7: 2 are in Recover, 2 in Create, 3 in the first step, and 2 in each of the others: the reduction, which
// every rank ends, and the barrier.
constexpr int kReduction = 7, kBarrier = 8;

std::string FileOf(const std::string& dir, int rank) { return StrCat(dir, "/", rank); }

// The training loop of docs/sdk.md. Writes the outcome of the rank to a file.
//   args: a directory, and the deaths.
class Program {
 public:
  Program(Context& context, std::vector<std::string> args) : context_(context), args_(std::move(args)) {
    for (size_t i = 0; i < std::size(kCounts); ++i) model_.Add(kCounts[i], DType::kFloat32, i == 0);
    optimizer_ = MakeAdamW(model_.parameters(), {.learning_rate = 0.01}).value();
    internal::ContextState::Of(context).wrap_group_for_test = [this](std::shared_ptr<internal::Group> group) {
      return Wrap(std::move(group));
    };
  }

  int Main() {
    context_.Survive();
    // A rank that fails before the agent has answered exits, and would be started once more.
    const TimePoint deadline = std::chrono::steady_clock::now() + seconds(30);
    while (!context_.MayContinue(AbortedError("")) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    StatusOr<Communicator> world = context_.Connect();
    while (true) {
      const Status status = world.ok() ? Train(*world) : world.status();
      if (status.ok()) break;
      if (!context_.MayContinue(status)) {
        std::fprintf(stderr, "rank %d: %s\n", context_.rank(), status.ToString().c_str());
        return 1;
      }
      world = context_.NextRound(status);
    }
    std::string state;
    for (const Parameter& p : model_.parameters()) state += Bytes(p.value);
    for (const StateTensor& tensor : optimizer_->state()) state += Bytes(tensor.values);
    std::ofstream(FileOf(args_[0], context_.rank()))
        << "step " << step_ << ", counted " << num_counted_ << ", state " << std::hash<std::string>()(state);
    return 0;
  }

 private:
  std::shared_ptr<internal::Group> Wrap(std::shared_ptr<internal::Group> group) {
    fate_ = std::make_shared<DyingGroup::Fate>();
    std::vector<int> dying;  // ranks of this round
    for (size_t i = 1; i + 4 <= args_.size(); i += 4) {
      const auto number = [&](size_t k) { return ParseNumber<int>(args_[i + k]).value(); };
      const Death death{number(0), number(1), number(2), number(3)};
      if (death.round != context_.round()) continue;
      dying.push_back(death.rank);
      if (death.rank == context_.rank()) fate_->death = death;
    }
    // A rank that sees another one die does not reach its own death.
    fate_->before_death = [this, dying] { MeetTheDying(dying); };
    return std::make_shared<DyingGroup>(std::move(group), fate_);
  }

  // Waits until all these ranks of the round have called this method.
  void MeetTheDying(const std::vector<int>& ranks) const {
    const auto file = [this](int rank) {
      return FileOf(args_[0], rank) + StrCat(".dying", context_.round());
    };
    std::ofstream(file(context_.rank())).flush();
    const TimePoint deadline = std::chrono::steady_clock::now() + seconds(30);
    const auto waits = [&file](int rank) { return !std::filesystem::exists(file(rank)); };
    while (std::ranges::any_of(ranks, waits) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
  }

  Status Train(Communicator world) {
    const RecoverOptions options{.step = &step_,
                                 .last = dp_ ? &*dp_ : nullptr,
                                 .parameters = model_.parameters(),
                                 .optimizer = optimizer_.get(),
                                 .more = {{&num_counted_, 1, DType::kInt64}},
                                 .committed = [this](int64_t) { ++num_counted_; }};
    DDPRUN_RETURN_IF_ERROR(Recover(context_, world, options).status());
    dp_.reset();
    if (step_ < 0) {
      for (const Parameter& p : model_.parameters()) FillRandom(p.value, 0, p.value.count, 0);
      for (const StateTensor& tensor : optimizer_->state()) {
        std::memset(tensor.values.data, 0, tensor.values.count * SizeOf(tensor.values.dtype));
      }
      step_ = num_counted_ = 0;
    }
    DDPRUN_ASSIGN_OR_RETURN(dp_, DataParallel::Create(world, model_.parameters(),
                                                      {.bucket_bytes = 1 << 20, .atomic_steps = true}));
    while (step_ < kSteps) {
      if (step_ == kSteps - 1) fate_->death.reset();  // otherwise ranks that are done could be needed
      dp_->Begin();
      for (const size_t i : Backwards(*dp_)) {
        FillRandom(dp_->gradient(i), world.rank(), i, step_);
        dp_->Ready(i);
      }
      DDPRUN_RETURN_IF_ERROR(dp_->Finish({.optimizer = optimizer_.get(), .step = {.step = step_ + 1}}));
      ++num_counted_;
      context_.Report(++step_);
    }
    return OkStatus();
  }

  Context& context_;
  const std::vector<std::string> args_;
  std::shared_ptr<DyingGroup::Fate> fate_;
  FakeModel model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<DataParallel> dp_;
  int64_t step_ = -1;
  int64_t num_counted_ = 0;
};

// A job that has ended.
struct Result {
  std::string problem;
  std::vector<std::string> outcomes;  // by rank
  std::vector<int> num_starts;        // by rank
  int num_killed = 0, num_parked = 0, num_rounds = 0;
};

Result RunJob(const std::vector<int>& split, const std::vector<Death>& deaths) {
  std::string dir = StrCat(std::getenv("TEST_TMPDIR"), "/job.XXXXXX");
  EXPECT_NE(mkdtemp(dir.data()), nullptr);
  std::vector<std::string> args = {dir};
  for (const Death& d : deaths) {
    for (const int number : {d.rank, d.round, d.operation, d.after}) args.push_back(StrCat(number));
  }
  FakeLauncher launcher(split, args);
  Result result;
  result.problem = launcher.Run(seconds(60));
  for (int r = 0; r < launcher.world_size(); ++r) {
    std::stringstream text;
    text << std::ifstream(FileOf(dir, r)).rdbuf();
    result.outcomes.push_back(text.str());
    result.num_starts.push_back(launcher.num_starts(r));
  }
  result.num_killed = launcher.num_killed();
  result.num_parked = launcher.num_parked();
  result.num_rounds = launcher.round() - kFirstRound + 1;
  std::filesystem::remove_all(dir);
  return result;
}

class NextRoundTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  NextRoundTest() {
    for (const int n : GetParam()) world_ += n;
    const Result undisturbed = RunJob(GetParam(), {});
    EXPECT_EQ(undisturbed.problem, "");
    EXPECT_EQ(undisturbed.num_rounds, 1);
    expected_ = undisturbed.outcomes;
    EXPECT_THAT(expected_, testing::Each(expected_[0]));
    EXPECT_THAT(expected_[0], testing::HasSubstr("step 5, counted 5, "));
  }

  // All deaths occur, in a round each or in the same one; nobody else is started again.
  void ExpectRecovery(const std::vector<Death>& deaths) {
    std::string trace;
    std::vector<int> num_starts(world_, 1);
    std::vector<int> rounds;
    for (const Death& d : deaths) {
      trace += StrCat(" rank ", d.rank, " of round ", d.round, " dies ", d.after ? "in" : "before",
                      " operation ", d.operation, ";");
      ++num_starts[d.rank];
      if (std::ranges::count(rounds, d.round) == 0) rounds.push_back(d.round);
    }
    SCOPED_TRACE(trace);
    const Result result = RunJob(GetParam(), deaths);
    ASSERT_EQ(result.problem, "");
    EXPECT_EQ(result.num_killed, static_cast<int>(deaths.size()));
    EXPECT_EQ(result.num_rounds, static_cast<int>(1 + rounds.size()));
    EXPECT_EQ(result.num_parked, static_cast<int>(world_ * rounds.size() - deaths.size()));
    EXPECT_EQ(result.num_starts, num_starts);
    EXPECT_EQ(result.outcomes, expected_);
  }

  int world_ = 0;
  std::vector<std::string> expected_;
};
INSTANTIATE_TEST_SUITE_P(Splits, NextRoundTest,
                         testing::Values(std::vector{2}, std::vector{3}, std::vector{4}, std::vector{2, 1},
                                         std::vector{1, 1, 1}, std::vector{2, 2}),
                         [](const auto& info) { return StrJoin(info.param, "_"); });

TEST_P(NextRoundTest, ARankDiesBeforeInAndAfterTheBarrier) {
  for (int rank = 0; rank < world_; ++rank) {
    ExpectRecovery({{rank, kFirstRound, kReduction, 0}});
    ExpectRecovery({{rank, kFirstRound, kBarrier, 0}});
    ExpectRecovery({{rank, kFirstRound, kBarrier, 1}});
    ExpectRecovery({{rank, kFirstRound, kBarrier + 1, 0}});
  }
}

// In the second round: in Recover, also while joiners get their state, in Create, and in a step.
TEST_P(NextRoundTest, TwoDeathsInARow) {
  for (int operation = 0; operation < 8; ++operation) {
    const int first = operation % world_;
    for (const int second : {first, (first + 1) % world_}) {
      ExpectRecovery(
          {{first, kFirstRound, kBarrier, operation % 2}, {second, kFirstRound + 1, operation, 0}});
    }
  }
}

TEST_P(NextRoundTest, TwoDeathsAtOnce) {
  if (world_ < 3) return;
  ExpectRecovery({{0, kFirstRound, kBarrier, 0}, {world_ - 1, kFirstRound, kBarrier, 0}});
}

TEST_P(NextRoundTest, AJoinerDiesBeforeItConnects) {
  // Operation 0 of a round is the first after Connect: the others are in Recover.
  ExpectRecovery({{1, kFirstRound, kBarrier, 0}, {1, kFirstRound + 1, 0, 0}, {1, kFirstRound + 2, 0, 0}});
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (auto args = ddprun::FakeLauncher::Args()) {
    ddprun::StatusOr<ddprun::Context> context = ddprun::Context::FromEnvironment();
    if (!context.ok()) return 1;
    return ddprun::Program(*context, *args).Main();
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
