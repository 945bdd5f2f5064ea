// Tests when operations of the host communicator finished.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/comm/group.h"
#include "worker_sdk/comm/host/host_communicator.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using internal::WorkAccess;

TEST(OperationEndTest, AnOperationEndsBeforeItsCallerWaits) {
  Communicator comm = CreateHostCommunicator({}, nullptr).value();
  std::vector<float> values(100000);
  const TimePoint begin = Clock::now();
  Work work = comm.AllReduce(View(values), ReduceOp::kSum);
  while (!work.Done()) std::this_thread::yield();
  const TimePoint seen = Clock::now();
  ASSERT_EQ(work.Wait(), OkStatus());
  const auto end = WorkAccess::OperationOf(work)->ended();
  ASSERT_TRUE(end.has_value());
  EXPECT_GT(*end, begin);
  EXPECT_LT(*end, seen);
}

TEST(OperationEndTest, SmallOperationsDoNotReadTheClock) {
  Communicator comm = CreateHostCommunicator({}, nullptr).value();
  std::vector<float> values(1023);
  Work work = comm.AllReduce(View(values), ReduceOp::kSum);
  ASSERT_EQ(work.Wait(), OkStatus());
  EXPECT_FALSE(WorkAccess::OperationOf(work)->ended().has_value());
}

}  // namespace
}  // namespace ddprun
