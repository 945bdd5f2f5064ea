// Tests how DataParallel reduces gradients: with one thread for each rank, and with a communicator that counts.
#include "ddprun/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <latch>
#include <mutex>
#include <numeric>
#include <random>
#include <set>

#include "ddprun/status.h"
#include "worker_sdk/comm/testing/rank_threads.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/ddp/testing/model.h"

namespace ddprun {
namespace {

using std::chrono::seconds;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

// Sizes that fill several small buckets, with all types; every third gradient has memory of its own.
FakeModel MixedModel() {
  FakeModel model;
  const int64_t counts[] = {3, 1000, 0, 70, 5000, 1, 16, 17, 2000, 640};
  for (size_t i = 0; i < std::size(counts); ++i) model.Add(counts[i], kTypes[i % 4], i % 3 == 0);
  return model;
}

class DataParallelWorldTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, DataParallelWorldTest, testing::Values(1, 2, 3, 5),
                         [](const auto& info) { return StrCat(info.param); });

TEST_P(DataParallelWorldTest, SumsAndAveragesInAnyReadyOrder) {
  const int world = GetParam();
  for (const auto& options :
       {DataParallelOptions{.op = ReduceOp::kMean, .bucket_bytes = 4096, .first_bucket_bytes = 8},
        DataParallelOptions{.op = ReduceOp::kSum}}) {
    WithRanks(world, [&](Communicator& comm) {
      const FakeModel model = MixedModel();
      auto dp = DataParallel::Create(comm, model.parameters(), options);
      ASSERT_TRUE(dp.ok()) << dp.status();
      std::mt19937 random(comm.rank());  // a different order in each rank
      std::vector<size_t> order = Backwards(*dp);
      for (int64_t step = 1; step <= 5; ++step) {
        std::ranges::shuffle(order, random);
        ASSERT_EQ(StepInOrder(*dp, comm.rank(), step, FillWhole, order), OkStatus());
        for (size_t i = 0; i < order.size(); ++i) {
          const std::vector<double> reduced = Elements(dp->gradient(i));
          ASSERT_EQ(reduced.size(), model.parameters()[i].value.count);
          for (size_t e = 0; e < reduced.size(); ++e) {
            double sum = 0;
            for (int r = 0; r < world; ++r) sum += WholeAt(r, i, step, static_cast<int64_t>(e));
            const double expected = options.op == ReduceOp::kSum ? sum : sum / world;
            ASSERT_NEAR(reduced[e], expected, expected / 250) << "gradient " << i << " element " << e;
            if (options.op == ReduceOp::kSum) {
              ASSERT_EQ(reduced[e], expected);
            }
          }
        }
      }
    });
  }
}

// The bits of all gradients after the fourth step, when every plan is in effect.
std::vector<std::string> BitsOf(int world, const DataParallelOptions& options) {
  std::vector<std::vector<std::string>> bits(world);
  WithRanks(world, [&](Communicator& comm) {
    const FakeModel model = MixedModel();
    auto dp = DataParallel::Create(comm, model.parameters(), options);
    ASSERT_TRUE(dp.ok()) << dp.status();
    for (int64_t step = 1; step <= 4; ++step) {
      ASSERT_EQ(StepInOrder(*dp, comm.rank(), step, FillRandom, Backwards(*dp)), OkStatus());
    }
    for (size_t i = 0; i < model.parameters().size(); ++i) {
      bits[comm.rank()].push_back(Bytes(dp->gradient(i)));
    }
  });
  EXPECT_THAT(bits, Each(bits[0]));  // equal on all ranks
  return bits[0];
}

TEST_P(DataParallelWorldTest, BitsDoNotDependOnBuckets) {
  for (const Compression compression : {Compression::kNone, Compression::kFloat16, Compression::kBFloat16}) {
    const std::vector<std::string> one_bucket =
        BitsOf(GetParam(), {.bucket_bytes = 1 << 30, .compression = compression});
    EXPECT_EQ(BitsOf(GetParam(), {.bucket_bytes = 1, .compression = compression}), one_bucket);
    EXPECT_EQ(BitsOf(GetParam(), {.bucket_bytes = 5000, .compression = compression}), one_bucket);
    EXPECT_EQ(BitsOf(GetParam(), {.compression = compression}), one_bucket);
    EXPECT_EQ(BitsOf(GetParam(), {.overlap = false, .compression = compression, .unused_parameters = true}),
              one_bucket);
  }
}

TEST_P(DataParallelWorldTest, GradientsMayBeLeftOut) {
  const int world = GetParam();
  WithRanks(world, [&](Communicator& comm) {
    const FakeModel model = MixedModel();
    auto dp = DataParallel::Create(comm, model.parameters(),
                                   {.op = ReduceOp::kSum, .bucket_bytes = 4096, .unused_parameters = true});
    ASSERT_TRUE(dp.ok()) << dp.status();
    for (int64_t step = 1; step <= 3; ++step) {
      dp->Begin();
      for (size_t i = 0; i < model.parameters().size(); ++i) {
        FillWhole(dp->gradient(i), comm.rank(), i, step);  // what Ready does not report counts as zero
        const bool only_last = i == 4 || i == 5;
        if (i == 1 || i == 6 || (only_last && comm.rank() < world - 1)) continue;
        dp->Ready(i);
      }
      ASSERT_EQ(dp->Finish(), OkStatus());
      EXPECT_THAT(dp->unused(), ElementsAre(1, 6));
      EXPECT_THAT(Elements(dp->gradient(1)), Each(0));
      EXPECT_THAT(Elements(dp->gradient(6)), Each(0));
      EXPECT_EQ(Elements(dp->gradient(4))[2], WholeAt(world - 1, 4, step, 2));
      double sum = 0;
      for (int r = 0; r < world; ++r) sum += WholeAt(r, 8, step, 3);
      EXPECT_EQ(Elements(dp->gradient(8))[3], sum);
    }
    ASSERT_EQ(StepInOrder(*dp, comm.rank(), 4, FillWhole, Backwards(*dp)), OkStatus());
    EXPECT_THAT(dp->unused(), IsEmpty());
  });
}

TEST(DataParallelStepTest, AModelWithoutElementsIsReduced) {
  for (const Compression compression : {Compression::kNone, Compression::kFloat16}) {
    WithRanks(2, [&](Communicator& comm) {
      FakeModel model;
      model.Add(0, DType::kFloat64);
      auto dp = DataParallel::Create(comm, model.parameters(), {.compression = compression});
      ASSERT_TRUE(dp.ok()) << dp.status();
      for (int64_t step = 1; step <= 3; ++step) {
        ASSERT_EQ(StepInOrder(*dp, comm.rank(), step, FillWhole, {0}, {.clip_norm = 1}), OkStatus());
      }
      EXPECT_EQ(dp->gradient(0).dtype, DType::kFloat64);
      EXPECT_EQ(dp->gradient(0).count, 0);
      EXPECT_NE(dp->gradient(0).data, nullptr);
      EXPECT_EQ(dp->norm(), 0);
    });
  }
}

TEST(DataParallelErrorTest, AGradientThatIsNotReadyIsNamedAndFailsAllRanks) {
  std::latch created(3);  // an error of one rank may fail the creation on another
  WithRanks(3, [&](Communicator& comm) {
    const FakeModel model = MixedModel();
    auto dp = DataParallel::Create(comm, model.parameters());
    created.arrive_and_wait();
    ASSERT_TRUE(dp.ok()) << dp.status();
    dp->Begin();
    for (size_t i = 0; i < model.parameters().size(); ++i) {
      FillWhole(dp->gradient(i), comm.rank(), i, 1);
      if (comm.rank() != 1 || (i != 4 && i != 7)) dp->Ready(i);
    }
    const Status status = dp->Finish();
    EXPECT_THAT(status.message(), HasSubstr("Ready() was not called for parameter p4"));
    EXPECT_EQ(status.code(), comm.rank() == 1 ? StatusCode::kFailedPrecondition : StatusCode::kAborted);
  });
}

TEST(DataParallelErrorTest, DifferentModelsAndOptionsAreErrorsOnAllRanks) {
  const auto errors = [](const DataParallelOptions& usual, const DataParallelOptions& other, int64_t count) {
    std::set<std::string> messages;
    std::mutex mu;
    WithRanks(3, [&](Communicator& comm) {
      FakeModel model;
      model.Add(5);
      model.Add(comm.rank() == 2 ? count : 7);
      const auto dp = DataParallel::Create(comm, model.parameters(), comm.rank() == 2 ? other : usual);
      EXPECT_EQ(dp.status().code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(comm.Barrier().Wait(), OkStatus());
      const std::lock_guard<std::mutex> lock(mu);
      messages.insert(std::string(dp.status().message()));
    });
    return messages;
  };
  EXPECT_THAT(errors({}, {}, 8),
              ElementsAre("creating DataParallel: the ranks differ: the shape of parameter p1 is "
                          "[7] on rank 0 and is [8] on rank 2"));
  EXPECT_THAT(errors({}, {.op = ReduceOp::kSum}, 7),
              ElementsAre(HasSubstr("DataParallelOptions::op is mean on rank 0 and is sum on rank 2")));
  EXPECT_THAT(errors({}, {.bucket_bytes = 9}, 7), ElementsAre(HasSubstr("bucket_bytes is 0 on rank 0")));
  EXPECT_THAT(errors({.bucket_bytes = 9}, {.bucket_bytes = 9, .first_bucket_bytes = 1}, 7),
              ElementsAre(HasSubstr("first_bucket_bytes is 0 on rank 0 and is 1")));
  EXPECT_THAT(errors({}, {.compression = Compression::kBFloat16}, 7),
              ElementsAre(HasSubstr("compression is 0 on rank 0 and is 2")));
  EXPECT_THAT(errors({.compression = Compression::kFloat16},
                     {.compression = Compression::kFloat16, .error_feedback = true}, 7),
              ElementsAre(HasSubstr("error_feedback is false on rank 0 and is true on rank 2")));
  EXPECT_THAT(errors({}, {.unused_parameters = true}, 7),
              ElementsAre(HasSubstr("unused_parameters is false")));
  // Invalid on one rank.
  EXPECT_THAT(errors({}, {.op = ReduceOp::kMax}, 7),
              ElementsAre("creating DataParallel: rank 2: op is max: it must be mean or sum"));
}

TEST(DataParallelErrorTest, InvalidArgumentsAreNamed) {
  const Communicator comm(std::make_shared<CountingGroup>(1));
  FakeModel model;
  model.Add(3);
  const auto fault = [&](const DataParallelOptions& options) {
    const auto dp = DataParallel::Create(comm, model.parameters(), options);
    EXPECT_EQ(dp.status().code(), StatusCode::kInvalidArgument);
    return std::string(dp.status().message());
  };
  EXPECT_THAT(fault({.op = ReduceOp::kProduct}), HasSubstr("op is product"));
  EXPECT_THAT(fault({.op = ReduceOp(9)}), HasSubstr("op is unknown"));
  EXPECT_THAT(fault({.bucket_bytes = -1}), HasSubstr("bucket_bytes is -1"));
  EXPECT_THAT(fault({.bucket_bytes = 1, .first_bucket_bytes = -2}), HasSubstr("first_bucket_bytes is -2"));
  EXPECT_THAT(fault({.first_bucket_bytes = 7}), HasSubstr("first_bucket_bytes needs bucket_bytes"));
  EXPECT_THAT(fault({.compression = Compression(3)}), HasSubstr("compression is 3"));
  EXPECT_THAT(fault({.error_feedback = true}), HasSubstr("error_feedback needs compression"));
  EXPECT_THAT(fault({.timeout = seconds(0)}), HasSubstr("timeout is 0 ns"));
  EXPECT_THAT(DataParallel::Create(comm, {}).status().message(), HasSubstr("the model has no parameters"));
  FakeModel integers;
  integers.Add(3, DType::kInt32);
  EXPECT_THAT(DataParallel::Create(comm, integers.parameters()).status().message(),
              HasSubstr("parameter p0: its dtype int32 is not a floating-point type"));
  EXPECT_EQ(DataParallel::Create({}, model.parameters()).status().code(), StatusCode::kFailedPrecondition);
}

TEST(DataParallelErrorTest, FinishFailsWhenAPeerIsLate) {
  std::promise<void> gave_up;
  std::shared_future<void> other_gave_up = gave_up.get_future().share();
  WithRanks(2, [&](Communicator& comm) {
    FakeModel model;
    model.Add(1);
    auto dp = DataParallel::Create(comm, model.parameters(), {.timeout = seconds(2)});
    ASSERT_TRUE(dp.ok()) << dp.status();
    if (comm.rank() == 0) {
      EXPECT_EQ(StepInOrder(*dp, 0, 1, FillWhole, {0}).code(), StatusCode::kDeadlineExceeded);
      gave_up.set_value();
    } else {
      EXPECT_EQ(other_gave_up.wait_for(seconds(30)), std::future_status::ready);
      EXPECT_EQ(comm.status().code(), StatusCode::kDeadlineExceeded);
    }
  });
}

// Also if no bucket has started, because the other ranks wait for this one.
TEST(DataParallelErrorTest, DestructionDuringAStepAbortsTheCommunicator) {
  for (const size_t num_ready : {0, 1, 2}) {
    std::latch created(2);
    std::promise<void> destroyed;
    std::shared_future<void> other_destroyed = destroyed.get_future().share();
    WithRanks(2, [&](Communicator& comm) {
      FakeModel model;
      model.Add(100);
      model.Add(100);
      {
        auto dp = DataParallel::Create(comm, model.parameters(), {.bucket_bytes = 1});
        created.arrive_and_wait();
        ASSERT_TRUE(dp.ok()) << dp.status();
        if (comm.rank() == 0) {
          dp->Begin();
          for (size_t k = 0; k < num_ready; ++k) dp->Ready(1 - k);
        }
      }
      if (comm.rank() == 0) destroyed.set_value();
      EXPECT_EQ(other_destroyed.wait_for(seconds(30)), std::future_status::ready);
      EXPECT_EQ(comm.status().code(), StatusCode::kAborted) << comm.status();
    });
  }
}

class DataParallelCountTest : public testing::Test {
 protected:
  DataParallel Create(const FakeModel& model, const DataParallelOptions& options) {
    DataParallel dp = DataParallel::Create(Communicator(group_), model.parameters(), options).value();
    group_->calls.clear();
    return dp;
  }
  // The all-reduces since the last call.
  std::vector<internal::Call> TakeAllReduces() {
    std::vector<internal::Call> calls = std::exchange(group_->calls, {});
    std::erase_if(calls, [](const internal::Call& c) { return c.kind != internal::OpKind::kAllReduce; });
    return calls;
  }
  static uint64_t BytesOf(const std::vector<internal::Call>& calls) {
    uint64_t bytes = 0;
    for (const internal::Call& call : calls) bytes += call.num_bytes;
    return bytes;
  }

  const std::shared_ptr<CountingGroup> group_ = std::make_shared<CountingGroup>(4);
};

TEST_F(DataParallelCountTest, AccumulationSendsNothing) {
  FakeModel model;
  model.Add(10000);
  model.Add(10000, DType::kFloat32, true);
  DataParallel dp = Create(model, {.bucket_bytes = 1000});
  for (int64_t step = 1; step <= 2; ++step) {
    dp.Begin();
    FillWhole(dp.gradient(0), 0, 0, 0);  // remains of an earlier step
    dp.ZeroGradients();
    for (int pass = 0; pass < 3; ++pass) {
      EXPECT_THAT(TakeAllReduces(), IsEmpty());
      for (const size_t i : {1, 0}) {
        auto* gradient = static_cast<float*>(dp.gradient(i).data);
        for (int e = 0; e < 10000; ++e) gradient[e] += static_cast<float>(e + pass);
      }
    }
    dp.Ready(1);
    EXPECT_THAT(TakeAllReduces(), SizeIs(1));
    dp.Ready(0);
    EXPECT_THAT(TakeAllReduces(), SizeIs(1));
    ASSERT_EQ(dp.Finish(), OkStatus());
    EXPECT_THAT(TakeAllReduces(), IsEmpty());
    EXPECT_EQ(Elements(dp.gradient(0))[50], 3 * 50 + 3);
    EXPECT_EQ(Elements(dp.gradient(1))[50], 3 * 50 + 3);
  }
}

TEST_F(DataParallelCountTest, CompressionHalvesTheBytesOfFloat32) {
  FakeModel model;
  for (int i = 0; i < 5; ++i) model.Add(1000 + i);
  const auto bytes = [&](Compression compression) {
    DataParallel dp = Create(model, {.bucket_bytes = 1000, .compression = compression});
    EXPECT_EQ(StepInOrder(dp, 0, 1, FillWhole, Backwards(dp)), OkStatus());
    return BytesOf(TakeAllReduces());
  };
  const uint64_t whole = bytes(Compression::kNone);
  EXPECT_GE(whole, 5 * 4 * 1000u);
  EXPECT_EQ(2 * bytes(Compression::kBFloat16), whole);
  EXPECT_EQ(2 * bytes(Compression::kFloat16), whole);
}

TEST_F(DataParallelCountTest, GradientsOf16BitsKeepTheirType) {
  FakeModel model;
  model.Add(100, DType::kBFloat16);
  DataParallel dp = Create(model, {.bucket_bytes = 1000, .compression = Compression::kFloat16});
  ASSERT_EQ(StepInOrder(dp, 0, 1, FillWhole, {0}), OkStatus());
  const auto calls = TakeAllReduces();
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0].dtype, DType::kBFloat16);
  EXPECT_EQ(calls[0].op, ReduceOp::kMean);
}

TEST_F(DataParallelCountTest, UnusedParametersNeedNoFurtherOperation) {
  FakeModel model;
  for (int i = 0; i < 4; ++i) model.Add(100);
  DataParallel dp = Create(model, {.bucket_bytes = 500, .unused_parameters = true});
  dp.Begin();
  dp.Ready(2);
  EXPECT_THAT(TakeAllReduces(), IsEmpty());
  ASSERT_EQ(dp.Finish(), OkStatus());
  EXPECT_THAT(TakeAllReduces(), SizeIs(2));
  EXPECT_THAT(dp.unused(), ElementsAre(0, 1, 3));
}

TEST_F(DataParallelCountTest, WithoutOverlapNoBucketStartsBeforeFinish) {
  FakeModel model;
  for (int i = 0; i < 4; ++i) model.Add(100);
  DataParallel dp = Create(model, {.bucket_bytes = 1, .overlap = false});
  for (int64_t step = 1; step <= 2; ++step) {
    dp.Begin();
    for (size_t i = 0; i < 4; ++i) dp.Ready(i);
    EXPECT_THAT(TakeAllReduces(), IsEmpty());
    ASSERT_EQ(dp.Finish(), OkStatus());
    EXPECT_THAT(TakeAllReduces(), SizeIs(4));
  }
}

TEST_F(DataParallelCountTest, TimingsHaveTheEndOfTheOperationAndNotThatOfTheWait) {
  FakeModel model;
  model.Add(1000);
  model.Add(1000);
  DataParallel dp = Create(model, {.bucket_bytes = 1});
  const TimePoint end = std::chrono::steady_clock::now() - seconds(5);
  group_->end = end;
  dp.Begin();
  dp.Ready(0);
  const TimePoint between = std::chrono::steady_clock::now();
  dp.Ready(1);
  ASSERT_EQ(dp.Finish(), OkStatus());
  ASSERT_THAT(dp.timings(), SizeIs(2));
  for (const auto& timing : dp.timings()) {
    EXPECT_EQ(timing.reduced, end);
    EXPECT_EQ(timing.num_bytes, 4032);   // 1000 elements, up to a multiple of 64 bytes
    EXPECT_GE(timing.started, between);  // the bucket of gradient 1 is the first one
  }
  EXPECT_THAT(dp.timings()[0].parameters, ElementsAre(1));
  EXPECT_THAT(dp.timings()[1].parameters, ElementsAre(0));
}

using DataParallelDeathTest = DataParallelCountTest;

TEST_F(DataParallelDeathTest, MisuseAborts) {
  FakeModel model;
  model.Add(3);
  model.Add(3);
  DataParallel dp = Create(model, {});
  EXPECT_DEATH(dp.Ready(0), "p0 became ready twice in a step, or outside a step");
  EXPECT_DEATH((void)dp.Finish(), "without Begin");
  EXPECT_DEATH(dp.ZeroGradients(), "outside a step");
  EXPECT_DEATH((void)dp.gradient(2), "no such gradient");
  dp.Begin();
  dp.Ready(1);
  EXPECT_DEATH(dp.Begin(), "before Finish");
  EXPECT_DEATH(dp.Ready(1), "p1 became ready twice");
  EXPECT_DEATH(dp.Ready(2), "no such gradient");
  EXPECT_DEATH(dp.ZeroGradients(), "after Ready");
  dp.Ready(0);
  ASSERT_EQ(dp.Finish(), OkStatus());
  dp.Begin();
  EXPECT_EQ(dp.Finish().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(group_->aborts, ElementsAre("Ready() was not called for parameter p0"));
  EXPECT_DEATH(dp.Begin(), "after an error");
}

TEST_F(DataParallelCountTest, MovingKeepsTheStepAndAssignmentEndsTheOldOne) {
  FakeModel model;
  model.Add(3);
  DataParallel dp = Create(model, {});
  dp.Begin();
  DataParallel moved = std::move(dp);
  moved.Ready(0);
  EXPECT_THAT(group_->aborts, IsEmpty());
  moved = Create(model, {});
  EXPECT_THAT(group_->aborts, ElementsAre("a data-parallel step was not finished"));
  EXPECT_EQ(StepInOrder(moved, 0, 1, FillWhole, {0}), OkStatus());
}

}  // namespace
}  // namespace ddprun
