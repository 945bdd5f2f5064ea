// Tests DataParallelOptions::atomic_steps and LastStep, on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/data_parallel.h"
#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/testing/rank_threads.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/ddp/last_step.h"
#include "worker_sdk/ddp/testing/model.h"
#include "worker_sdk/device/host/gradients.h"

namespace ddprun {
namespace {

using internal::LastStep;
using testing::HasSubstr;

constexpr int64_t kCounts[] = {3, 1000, 0, 70, 5000, 1, 17};

// A model with its optimizer; all of its state as bytes.
struct Trained {
  Trained() {
    for (size_t i = 0; i < std::size(kCounts); ++i) model.Add(kCounts[i], DType::kFloat32, i % 3 == 0);
    optimizer = MakeAdamW(model.parameters(), {.learning_rate = 0.01, .weight_decay = 0.1}).value();
  }
  std::string State() const {
    std::string state;
    for (const Parameter& p : model.parameters()) state += Bytes(p.value);
    for (const StateTensor& tensor : optimizer->state()) state += Bytes(tensor.values);
    return state;
  }
  FakeModel model;
  std::unique_ptr<Optimizer> optimizer;
};

Status StepOf(DataParallel& dp, const Trained& trained, int rank, int64_t step, double clip_norm = 0) {
  return StepInOrder(dp, rank, step, FillRandom, Backwards(dp),
                     {.optimizer = trained.optimizer.get(), .step = {.step = step}, .clip_norm = clip_norm});
}

// Where an atomic step could differ.
struct Variant {
  DataParallelOptions options;
  double clip_norm = 0;
};
std::vector<Variant> Variants() {
  return {{},
          {.options = {.bucket_bytes = 1000}},
          {.options = {.compression = Compression::kBFloat16, .error_feedback = true}},
          {.options = {.unused_parameters = true}},
          {.options = {.overlap = false}, .clip_norm = 0.5},
          {.options = {}, .clip_norm = std::numeric_limits<double>::infinity()}};
}

TEST(AtomicStepTest, GivesTheBitsOfOtherSteps) {
  for (const int world : {1, 2, 3, 5}) {
    for (const Variant& variant : Variants()) {
      std::array<std::string, 2> states;
      for (const bool atomic : {false, true}) {
        WithRanks(world, [&](Communicator& comm) {
          const Trained trained;
          DataParallelOptions options = variant.options;
          options.atomic_steps = atomic;
          auto dp = DataParallel::Create(comm, trained.model.parameters(), options);
          ASSERT_TRUE(dp.ok()) << dp.status();
          for (int64_t step = 1; step <= 4; ++step) {
            ASSERT_EQ(StepOf(*dp, trained, comm.rank(), step, variant.clip_norm), OkStatus());
            EXPECT_EQ(LastStep(*dp).committed(), atomic ? step : -1);
            EXPECT_EQ(LastStep(*dp).prepared(), -1);
          }
          if (comm.rank() == 0) states[atomic] = trained.State();
        });
      }
      EXPECT_EQ(states[0], states[1]);
    }
  }
}

class FinishedOperation : public internal::Operation {
 public:
  explicit FinishedOperation(Status status)
      : Operation(std::chrono::seconds(60)), status_(std::move(status)) {}
  Status Wait(TimePoint) override { return status_; }
  bool Done() override { return true; }

 private:
  const Status status_;
};

// Communication ends at an operation.
class EndingGroup : public CountingGroup {
 public:
  EndingGroup() : CountingGroup(2) {}
  std::shared_ptr<internal::Operation> Start(const internal::Call& call, const void* in, void* out) override {
    if (calls.size() < ends_at) return CountingGroup::Start(call, in, out);
    // The output is undefined.
    if (out != nullptr) std::memset(out, 0xee, call.num_bytes);
    return std::make_shared<FinishedOperation>(UnavailableError("rank 1 of round 7 is gone"));
  }
  size_t ends_at = SIZE_MAX;
};

// The state after `num_steps` steps without an error.
std::string Undisturbed(const Variant& variant, int64_t num_steps) {
  const Trained trained;
  auto dp = DataParallel::Create(Communicator(std::make_shared<CountingGroup>(2)), trained.model.parameters(),
                                 variant.options);
  for (int64_t step = 1; step <= num_steps; ++step) {
    EXPECT_EQ(StepOf(*dp, trained, 0, step, variant.clip_norm), OkStatus());
  }
  return trained.State();
}

// In each of three steps, each operation fails: those of the plan in the second step, too.
TEST(AtomicStepTest, AnErrorLeavesTheStateBeforeTheStepAndAPreparedStepCanBeApplied) {
  for (const Variant& variant : Variants()) {
    for (int64_t failing = 1; failing <= 3; ++failing) {
      const std::string before = Undisturbed(variant, failing - 1), after = Undisturbed(variant, failing);
      int num_prepared = 0, num_unprepared = 0;
      for (size_t k = 0;; ++k) {
        SCOPED_TRACE(StrCat("step ", failing, ", operation ", k));
        const Trained trained;
        const auto group = std::make_shared<EndingGroup>();
        DataParallelOptions options = variant.options;
        options.atomic_steps = true;
        auto dp = DataParallel::Create(Communicator(group), trained.model.parameters(), options);
        ASSERT_TRUE(dp.ok()) << dp.status();
        for (int64_t step = 1; step < failing; ++step) {
          ASSERT_EQ(StepOf(*dp, trained, 0, step, variant.clip_norm), OkStatus());
        }
        group->ends_at = group->calls.size() + k;
        const Status status = StepOf(*dp, trained, 0, failing, variant.clip_norm);
        LastStep last(*dp);
        if (status.ok()) {
          EXPECT_EQ(trained.State(), after);
          EXPECT_EQ(last.committed(), failing);
          break;
        }
        EXPECT_THAT(status.message(), HasSubstr("is gone"));
        EXPECT_EQ(trained.State(), before);
        EXPECT_TRUE(last.is_atomic());
        EXPECT_EQ(last.committed(), failing == 1 ? -1 : failing - 1);
        if (last.prepared() < 0) {
          ++num_unprepared;
          EXPECT_EQ(last.optimizer(), nullptr);
          last.Release();
          continue;
        }
        ++num_prepared;
        EXPECT_EQ(last.prepared(), failing);
        EXPECT_EQ(last.optimizer(), trained.optimizer.get());
        // The gradients that backward reads and writes may be the program's own; those of the step are not.
        for (const Parameter& p : trained.model.parameters()) {
          if (p.gradient.data != nullptr) std::memset(p.gradient.data, 0xee, p.gradient.count * 4);
        }
        EXPECT_EQ(last.Apply(), OkStatus());
        EXPECT_EQ(trained.State(), after);
        EXPECT_EQ(last.committed(), failing);
        EXPECT_EQ(last.prepared(), -1);
        last.Release();
      }
      EXPECT_EQ(num_prepared, 1) << "the barrier";
      EXPECT_GE(num_unprepared, 1);
    }
  }
}

TEST(AtomicStepTest, APreparedStepThatIsDroppedChangesNothing) {
  const Trained trained;
  const auto group = std::make_shared<EndingGroup>();
  auto dp = DataParallel::Create(Communicator(group), trained.model.parameters(),
                                 {.bucket_bytes = 1 << 20, .atomic_steps = true});
  ASSERT_TRUE(dp.ok()) << dp.status();
  ASSERT_EQ(StepOf(*dp, trained, 0, 1), OkStatus());
  group->ends_at = group->calls.size() + 1;  // of the one bucket and the barrier
  EXPECT_FALSE(StepOf(*dp, trained, 0, 2).ok());
  LastStep last(*dp);
  ASSERT_EQ(last.prepared(), 2);
  last.Drop();
  last.Drop();  // nothing
  EXPECT_EQ(last.prepared(), -1);
  EXPECT_EQ(last.committed(), 1);
  EXPECT_EQ(trained.State(), Undisturbed({}, 1));
  last.Release();
  last.Release();  // nothing
}

// The optimizer does not update; the step counts nevertheless.
TEST(AtomicStepTest, ANormThatIsNotFiniteIsCommitted) {
  for (const bool fails : {false, true}) {
    Trained trained;
    const auto group = std::make_shared<EndingGroup>();
    auto dp = DataParallel::Create(Communicator(group), trained.model.parameters(),
                                   {.bucket_bytes = 1 << 20, .atomic_steps = true});
    ASSERT_TRUE(dp.ok()) << dp.status();
    const std::string before = trained.State();
    const size_t in_first_step = 3;  // bucket, plan, barrier
    if (fails) group->ends_at = group->calls.size() + in_first_step - 1;
    dp->Begin();
    for (const size_t i : Backwards(*dp)) {
      FillRandom(dp->gradient(i), 0, i, 1);
      if (i == 1) SetElement(dp->gradient(i), 5, std::numeric_limits<double>::infinity());
      dp->Ready(i);
    }
    const Status status =
        dp->Finish({.optimizer = trained.optimizer.get(), .step = {.step = 1}, .clip_norm = 1});
    EXPECT_EQ(status.ok(), !fails) << status;
    LastStep last(*dp);
    EXPECT_EQ(last.prepared(), fails ? 1 : -1);
    if (fails) {
      EXPECT_EQ(last.Apply(), OkStatus());
    }
    EXPECT_EQ(last.committed(), 1);
    EXPECT_EQ(trained.State(), before);
  }
}

// The program ended the step before Finish, because another operation had failed.
TEST(AtomicStepTest, AStepWithoutFinishIsNotPrepared) {
  const Trained trained;
  auto dp = DataParallel::Create(Communicator(std::make_shared<EndingGroup>()), trained.model.parameters(),
                                 {.atomic_steps = true});
  ASSERT_TRUE(dp.ok()) << dp.status();
  dp->Begin();
  FillRandom(dp->gradient(0), 0, 0, 1);
  dp->Ready(0);
  LastStep last(*dp);
  EXPECT_EQ(last.prepared(), -1);
  last.Release();
}

TEST(AtomicStepTest, NeedsAnOptimizerAndItsStep) {
  WithRanks(2, [](Communicator& comm) {
    const Trained trained;
    auto dp = DataParallel::Create(comm, trained.model.parameters(), {.atomic_steps = true});
    ASSERT_TRUE(dp.ok()) << dp.status();
    const Status status = StepInOrder(*dp, comm.rank(), 1, FillRandom, Backwards(*dp));
    EXPECT_TRUE(IsInvalidArgument(status) || status.code() == StatusCode::kAborted) << status;
    EXPECT_THAT(status.message(), HasSubstr("atomic_steps needs an optimizer"));
  });
  WithRanks(1, [](Communicator& comm) {
    const Trained trained;
    auto dp = DataParallel::Create(comm, trained.model.parameters(), {.atomic_steps = true});
    ASSERT_TRUE(dp.ok()) << dp.status();
    const Status status = StepOf(*dp, trained, 0, 0);
    EXPECT_TRUE(IsInvalidArgument(status)) << status;
  });
}

TEST(AtomicStepTest, MustBeEqualOnAllRanks) {
  WithRanks(2, [](Communicator& comm) {
    const Trained trained;
    const Status status =
        DataParallel::Create(comm, trained.model.parameters(), {.atomic_steps = comm.rank() == 1}).status();
    EXPECT_TRUE(IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("atomic_steps"));
  });
}

}  // namespace
}  // namespace ddprun
