// Tests Recover with processes that survive rounds. There is no agent: a rank whose round ends retires its fabric, and
// connects again with the next number; the test starts a new process in place of one that was killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "ddprun/communicator.h"
#include "ddprun/data_parallel.h"
#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/testing/file_store.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/ddp/testing/model.h"
#include "worker_sdk/recover/recover_in.h"
#include "worker_sdk/recover/testing/dying_group.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int kFirstRound = RankProcesses::kRound, kLastRound = kFirstRound + 3;
constexpr int64_t kSteps = 5;
constexpr int64_t kCounts[] = {3, 500, 70};
constexpr Duration kLimit = seconds(60);
// The first operations of steps in round 7: 2 are in Recover, 2 in Create, 3 in the first step, and 2 in the others.
constexpr int kSecondStep = 7, kThirdStep = 9;

// A training program with the state of one rank.
class Program {
 public:
  explicit Program(const RankProcess& self) : self_(self) {
    for (size_t i = 0; i < std::size(kCounts); ++i) {
      model_.Add(kCounts[i] + (IsSet("other-model") && i == 1), DType::kFloat32, i == 0);
    }
    optimizer_ = MakeAdamW(model_.parameters(), {.learning_rate = 0.01}).value();
  }

  int Main() {
    const int first = FirstRound();
    for (int round = first;; ++round) {
      const auto fabric = std::make_shared<Fabric>();
      const Status status = Round(round, fabric);
      const bool goes_on =
          IsUnavailable(status) || IsDeadlineExceeded(status) || status.code() == StatusCode::kAborted;
      if (!goes_on || round == kLastRound) return Report(status);
      fabric->Retire(AbortedError(StrCat("rank ", self_.options.rank.value(), " of round ", round,
                                         " gave up: the round is over: ", status.message())));
      history_.Leave(round);
    }
  }

  // The name of a file in the store's directory.
  static std::string FirstRoundFile(const std::string& dir, int rank) {
    return StrCat(dir, "/first-round.", rank);
  }

 private:
  int FirstRound() const {
    int round = kFirstRound;
    std::ifstream(FirstRoundFile(self_.store_dir, static_cast<int>(self_.options.rank.value()))) >> round;
    return round;
  }
  bool IsSet(const std::string& name) const {
    return std::ranges::find(self_.args, StrCat(name, ":", self_.options.rank.value(), ":", FirstRound())) !=
           self_.args.end();
  }

  Status Round(int round, const std::shared_ptr<Fabric>& fabric) {
    FakeFileStore store(StrCat(self_.store_dir, "/round.", round));
    HostCommunicatorOptions options = self_.options;
    options.round = ddprun::Round(round);
    DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<HostGroupInterface> group,
                            CreateHostGroup(options, &store, fabric));
    const auto fate = std::make_shared<DyingGroup::Fate>();
    for (size_t i = 0; i + 4 < self_.args.size(); ++i) {
      if (self_.args[i] != "death") continue;
      const auto number = [&](size_t k) { return ParseNumber<int>(self_.args[i + k]).value(); };
      const Death death{number(1), number(2), number(3), number(4)};
      if (death.rank == options.rank.value() && death.round == round) fate->death = death;
    }
    return Train(round, Communicator(std::make_shared<DyingGroup>(std::move(group), fate)), *fate);
  }

  Status Train(int round, Communicator world, DyingGroup::Fate& fate) {
    RecoverOptions options{.step = &step_,
                           .last = dp_ ? &*dp_ : nullptr,
                           .parameters = model_.parameters(),
                           .optimizer = optimizer_.get(),
                           .more = {{&num_counted_, 1, DType::kInt64}},
                           .committed = [this](int64_t) { ++num_counted_; }};
    DDPRUN_RETURN_IF_ERROR(
        RecoverIn(history_, round, self_.options.group_rank.value(), world, options).status());
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
      if (step_ == kSteps - 1) fate.death.reset();  // otherwise ranks that are done could be needed
      dp_->Begin();
      for (const size_t i : Backwards(*dp_)) {
        FillRandom(dp_->gradient(i), world.rank(), i, step_);
        dp_->Ready(i);
      }
      DDPRUN_RETURN_IF_ERROR(dp_->Finish({.optimizer = optimizer_.get(), .step = {.step = step_ + 1}}));
      ++step_;
      ++num_counted_;
      if (step_ == 2 && IsSet("miscounts")) ++step_;
    }
    return OkStatus();
  }

  int Report(const Status& status) const {
    std::string outcome = status.ToString();
    if (status.ok()) {
      std::string state;
      for (const Parameter& p : model_.parameters()) state += Bytes(p.value);
      for (const StateTensor& tensor : optimizer_->state()) state += Bytes(tensor.values);
      outcome =
          StrCat("step ", step_, ", counted ", num_counted_, ", state ", std::hash<std::string>()(state));
    }
    FakeFileStore store(self_.store_dir);
    (void)store.Set(StrCat("outcome/", self_.options.rank.value()), outcome);
    return 0;
  }

  const RankProcess self_;
  FakeModel model_;
  std::unique_ptr<Optimizer> optimizer_;
  StateHistory history_;
  std::optional<DataParallel> dp_;
  int64_t step_ = -1;
  int64_t num_counted_ = 0;
};

// The ranks of a job.
class Job {
 public:
  Job(std::vector<int> split, std::vector<Death> deaths, const std::vector<std::string>& args = {})
      : deaths_(std::move(deaths)), ranks_(std::move(split), Args(deaths_, args)) {
    for (int round = kFirstRound; round <= kLastRound; ++round) {
      fs::create_directory(StrCat(ranks_.store_dir(), "/round.", round));
    }
    ranks_.StartAll();
  }

  // Waits for the deaths, in their order, and replaces the dead. Returns false if one did not occur, because the rank has
  // ended without so many operations.
  bool Replace() {
    for (const Death& death : deaths_) {
      const std::optional<int> ended = ranks_.Wait(death.rank, kLimit);
      if (!ended) {
        ADD_FAILURE() << "rank " << death.rank << " neither died nor ended";
        return false;
      }
      if (!WIFSIGNALED(*ended)) {
        EXPECT_EQ(*ended, 0);
        ended_.push_back(death.rank);
        return false;
      }
      std::ofstream(Program::FirstRoundFile(ranks_.store_dir(), death.rank)) << death.round + 1;
      ranks_.Start(death.rank);
    }
    return true;
  }

  // Of all ranks, when they have ended.
  std::vector<std::string> Outcomes() {
    std::vector<std::string> outcomes;
    for (int r = 0; r < ranks_.world_size(); ++r) {
      const bool has_ended = std::ranges::count(ended_, r) > 0;
      const std::optional<int> ended = has_ended ? std::optional<int>(0) : ranks_.Wait(r, kLimit);
      EXPECT_EQ(ended, 0) << "rank " << r;
      if (ended != 0) return outcomes;
      outcomes.push_back(ranks_.store().Get(StrCat("outcome/", r), kLimit).value_or("none"));
    }
    return outcomes;
  }

 private:
  static std::vector<std::string> Args(const std::vector<Death>& deaths, std::vector<std::string> args) {
    args.insert(args.begin(), "recover");
    for (const Death& d : deaths) {
      for (const std::string& word :
           {std::string("death"), StrCat(d.rank), StrCat(d.round), StrCat(d.operation), StrCat(d.after)}) {
        args.push_back(word);
      }
    }
    return args;
  }

  const std::vector<Death> deaths_;
  RankProcesses ranks_;
  std::vector<int> ended_;
};

// What all ranks have at the end if none dies.
std::string Undisturbed(const std::vector<int>& split) {
  Job job(split, {});
  const std::vector<std::string> outcomes = job.Outcomes();
  EXPECT_THAT(outcomes, testing::Each(outcomes.empty() ? "" : outcomes[0]));
  EXPECT_FALSE(outcomes.empty());
  return outcomes.empty() ? "" : outcomes[0];
}

class RecoverTest : public testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(Splits, RecoverTest, testing::Values(std::vector{3}, std::vector{2, 1}),
                         [](const auto& info) { return StrJoin(info.param, "_"); });

// In round 7: in Recover, before there is any state, and at each operation of the steps.
TEST_P(RecoverTest, ARankDiesAtEachOperation) {
  const std::string expected = Undisturbed(GetParam());
  EXPECT_THAT(expected, HasSubstr("step 5, counted 5, "));
  int num_deaths = 0;
  for (const int after : {0, 1}) {
    for (int k = 0;; ++k) {
      const Death death{k % 3, kFirstRound, k, after};
      SCOPED_TRACE(StrCat("rank ", death.rank, ", operation ", k, after ? ", after" : ", before"));
      Job job(GetParam(), {death});
      const bool died = job.Replace();
      EXPECT_THAT(job.Outcomes(), testing::ElementsAre(expected, expected, expected));
      if (!died || HasFailure()) break;
      ++num_deaths;
    }
  }
  EXPECT_GT(num_deaths, 20);
}

// After a death in round 7, in which steps were committed, the joiner, the root and another survivor die in round 8.
TEST_P(RecoverTest, ARankDiesAtEachOperationOfTheNextRound) {
  const std::string expected = Undisturbed(GetParam());
  int num_deaths = 0;
  for (const int first : {0, 1, 2}) {
    for (int k = 0;; ++k) {
      const Death deaths[] = {{first, kFirstRound, kSecondStep + (k + first) % 4, k % 2},
                              {(first + k) % 3, kFirstRound + 1, k / 3, (k + first) % 2}};
      SCOPED_TRACE(StrCat("rank ", first, " and then rank ", deaths[1].rank, " at operation ", k / 3));
      Job job(GetParam(), {deaths[0], deaths[1]});
      const bool died = job.Replace();
      EXPECT_THAT(job.Outcomes(), testing::ElementsAre(expected, expected, expected));
      if (!died || HasFailure()) break;
      ++num_deaths;
    }
  }
  EXPECT_GT(num_deaths, 20);
}

TEST_P(RecoverTest, AnotherModel) {
  Job job(GetParam(), {{1, kFirstRound, kSecondStep, 0}}, {StrCat("other-model:1:", kFirstRound + 1)});
  ASSERT_TRUE(job.Replace());
  const std::vector<std::string> outcomes = job.Outcomes();
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_THAT(outcomes[0], HasSubstr("INVALID_ARGUMENT: recover: "));
  EXPECT_THAT(outcomes[0], HasSubstr("[501]"));
  EXPECT_THAT(outcomes, testing::Each(outcomes[0]));
}

TEST_P(RecoverTest, StepsThatCannotBe) {
  Job job(GetParam(), {{1, kFirstRound, kThirdStep, 0}}, {StrCat("miscounts:2:", kFirstRound)});
  ASSERT_TRUE(job.Replace());
  const std::vector<std::string> outcomes = job.Outcomes();
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_THAT(outcomes[0], HasSubstr("DATA_LOSS: recover: the steps of the survivors of round 7"));
  EXPECT_THAT(outcomes, testing::Each(outcomes[0]));
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (auto self = ddprun::RankProcess::Self()) return ddprun::Program(*self).Main();
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
