// Tests DataParallel with one thread for each rank. Each thread has its own communicator. The communicators
// use shared memory, like those of separate processes.
#include "worker_sdk/ddp/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <future>
#include <numeric>
#include <random>
#include <span>
#include <thread>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/comm/testing/file_store.h"

namespace ddprun {
namespace {

// Runs `body` on one thread per rank.
void WithRanks(int world, const std::function<void(Communicator&)>& body) {
  std::string dir = testing::TempDir() + "/store.XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      FakeFileStore store(dir);
      auto comm = CreateHostCommunicator({.rank = Rank(r),
                                          .world_size = world,
                                          .local_rank = LocalRank(r),
                                          .local_world_size = world,
                                          .round = Round(1)},
                                         &store);
      ASSERT_TRUE(comm.ok()) << comm.status();
      body(*comm);
    });
  }
  for (std::thread& t : threads) t.join();
  std::filesystem::remove_all(dir);
}

template <typename T>
class DataParallelTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(DataParallelTest, Types);

TYPED_TEST(DataParallelTest, AveragesGradientsOverRanksInAnyReadyOrder) {
  using T = TypeParam;
  WithRanks(2, [](Communicator& comm) {
    const int rank = comm.rank();
    std::vector<std::vector<T>> grads;
    for (size_t n : {3, 1000, 0, 70, 5000, 1}) grads.emplace_back(n);
    std::vector<std::span<T>> spans;
    for (auto& grad : grads) spans.push_back(std::span(grad));
    DataParallel<T> dp(comm, spans, {.bucket_bytes = 4096, .first_bucket_bytes = 8});
    std::mt19937 random(rank);  // a different order in each rank
    std::vector<size_t> order(grads.size());
    std::iota(order.begin(), order.end(), 0);
    for (int step = 0; step < 5; ++step) {
      dp.Begin();
      std::shuffle(order.begin(), order.end(), random);
      for (size_t i : order) {
        for (size_t k = 0; k < grads[i].size(); ++k)
          grads[i][k] = static_cast<T>(step * 100 + i * 10 + k + rank);
        dp.GradReady(i);
      }
      ASSERT_EQ(dp.Finish(), OkStatus());
      for (size_t i = 0; i < grads.size(); ++i) {
        for (size_t k = 0; k < grads[i].size(); ++k) {
          ASSERT_EQ(grads[i][k], static_cast<T>(step * 100 + i * 10 + k + 0.5));
        }
      }
    }
  });
}

TEST(DataParallelStepTest, SumsWithReduceOpSum) {
  WithRanks(3, [](Communicator& comm) {
    std::vector<float> grad = {1, static_cast<float>(comm.rank())};
    DataParallel<float> dp(comm, {std::span(grad)}, {.op = ReduceOp::kSum});
    dp.Begin();
    dp.GradReady(0);
    ASSERT_EQ(dp.Finish(), OkStatus());
    EXPECT_THAT(grad, testing::ElementsAre(3, 3));
  });
}

TEST(DataParallelStepTest, FinishFailsWhenAPeerIsLate) {
  std::promise<void> gave_up;
  std::shared_future<void> other_gave_up = gave_up.get_future().share();
  WithRanks(2, [&](Communicator& comm) {
    std::vector<float> grad = {1};
    DataParallel<float> dp(comm, {std::span(grad)}, {.timeout = milliseconds(50)});
    if (comm.rank() == 0) {
      dp.Begin();
      dp.GradReady(0);
      EXPECT_EQ(dp.Finish().code(), StatusCode::kDeadlineExceeded);
      gave_up.set_value();
    } else {
      EXPECT_EQ(other_gave_up.wait_for(seconds(30)), std::future_status::ready);
      EXPECT_EQ(comm.status().code(), StatusCode::kDeadlineExceeded);
    }
  });
}

TEST(DataParallelStepTest, DestructionDuringAStepAbortsTheCommunicator) {
  std::promise<void> destroyed;
  std::shared_future<void> other_destroyed = destroyed.get_future().share();
  WithRanks(2, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      std::vector<float> grad(100);
      {
        DataParallel<float> dp(comm, {std::span(grad)}, {});
        dp.Begin();
        dp.GradReady(0);
      }
      destroyed.set_value();
    } else {
      EXPECT_EQ(other_destroyed.wait_for(seconds(30)), std::future_status::ready);
    }
    EXPECT_EQ(comm.status().code(), StatusCode::kAborted) << comm.status();
  });
}

}  // namespace
}  // namespace ddprun
