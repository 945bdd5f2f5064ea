#include "worker_sdk/device/cuda/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/event.h"
#include "worker_sdk/device/cuda/blocking_calls.h"
#include "worker_sdk/device/cuda/testing/fake_cuda.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

constexpr Duration kLong = seconds(60), kShort = milliseconds(1);

TEST(CudaDevicesTest, HaveANameAndAUuid) {
  FakeCuda cuda;
  const auto devices = ListCudaDevices(cuda.driver).value();
  ASSERT_EQ(devices.size(), 2);
  EXPECT_EQ(devices[1].index, 1);
  EXPECT_EQ(devices[1].name, "Fake GPU");
  EXPECT_EQ(devices[1].uuid, "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f");
  cuda.Fail("cuDeviceGetCount", CUDA_ERROR_UNKNOWN);
  EXPECT_THAT(ListCudaDevices(cuda.driver).status().message(),
              HasSubstr("cuDeviceGetCount: CUDA_ERROR_OTHER"));
}

TEST(CudaContextTest, IsSharedWhileItIsUsed) {
  FakeCuda cuda;
  {
    const auto first = CudaContext::Open(&cuda.driver, 0).value();
    const auto second = CudaContext::Open(&cuda.driver, 0).value();
    const auto other = CudaContext::Open(&cuda.driver, 1).value();
    EXPECT_EQ(first, second);
    EXPECT_NE(first, other);
    EXPECT_EQ(other->index(), 1);
    EXPECT_EQ(cuda.num_live(), 2);
    const auto memory = first->Memory().value();
    EXPECT_EQ(memory.free_bytes, 1000);
    EXPECT_EQ(memory.total_bytes, 5000);
  }
  EXPECT_EQ(cuda.num_live(), 0);
  EXPECT_TRUE(CudaContext::Open(&cuda.driver, 0).ok());
  EXPECT_EQ(cuda.num_calls("cuDevicePrimaryCtxRetain"), 3);
}

TEST(CudaContextTest, ErrorsNameTheDevice) {
  FakeCuda cuda;
  for (const int index : {-1, 2})
    EXPECT_TRUE(IsInvalidArgument(CudaContext::Open(&cuda.driver, index).status()));
  EXPECT_THAT(CudaContext::Open(&cuda.driver, 2).status().message(),
              HasSubstr("there is no GPU 2: this process sees 2 (see CUDA_VISIBLE_DEVICES)"));
  cuda.Fail("cuDevicePrimaryCtxRetain", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(CudaContext::Open(&cuda.driver, 1).status().message(),
              HasSubstr("cuDevicePrimaryCtxRetain on GPU 1: "));
  cuda.Fail("cuDevicePrimaryCtxRetain", CUDA_ERROR_DEVICE_UNAVAILABLE);
  const Status unavailable = CudaContext::Open(&cuda.driver, 1).status();
  EXPECT_TRUE(IsFailedPrecondition(unavailable));
  EXPECT_THAT(unavailable.message(), HasSubstr("another process uses it in exclusive mode"));
}

TEST(CudaContextTest, AScopeRestoresThePreviousContext) {
  FakeCuda cuda;
  const auto first = CudaContext::Open(&cuda.driver, 0).value();
  const auto second = CudaContext::Open(&cuda.driver, 1).value();
  EXPECT_EQ(FakeCuda::depth(), 0);
  {
    const CudaScope outer(*first);
    {
      const CudaScope inner(*second);
      EXPECT_EQ(inner.status(), OkStatus());
      EXPECT_EQ(FakeCuda::depth(), 2);
    }
    EXPECT_EQ(FakeCuda::depth(), 1);
    cuda.Fail("cuCtxPushCurrent_v2", CUDA_ERROR_INVALID_VALUE);
    const CudaScope failed(*second);
    EXPECT_FALSE(failed.status().ok());
  }
  EXPECT_EQ(FakeCuda::depth(), 0);
  cuda.Fail("cuCtxPushCurrent_v2", CUDA_SUCCESS);
}

TEST(CudaContextTest, AStickyErrorMarksTheDeviceAsLost) {
  FakeCuda cuda;
  const auto context = CudaContext::Open(&cuda.driver, 0).value();
  EXPECT_FALSE(context->Check(CUDA_ERROR_INVALID_VALUE, "cuEventRecord").ok());
  EXPECT_FALSE(context->lost());
  cuda.LoseDevice(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(IsDeviceLost(context->Memory().status()));
  EXPECT_TRUE(context->lost());
}

TEST(CudaContextTest, AStreamOfAnotherContextIsRefused) {
  FakeCuda cuda;  // whose streams belong to device 0
  const auto stream = reinterpret_cast<CUstream>(0x1000);
  EXPECT_EQ(CudaContext::Open(&cuda.driver, 0).value()->CheckStream(stream), OkStatus());
  const Status status = CudaContext::Open(&cuda.driver, 1).value()->CheckStream(stream);
  EXPECT_EQ(status, InvalidArgumentError("the stream does not belong to the primary context of GPU 1"));
}

TEST(BlockingCallsTest, AreMadeInOrderOnAnotherThread) {
  BlockingCalls calls;
  std::thread::id thread;
  std::vector<int> order;
  EXPECT_TRUE(calls.Run([&] { thread = std::this_thread::get_id(); }, kLong));
  EXPECT_NE(thread, std::this_thread::get_id());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(calls.Run([&order, i] { order.push_back(i); }, kLong));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(BlockingCallsTest, ALateCallDelaysOneCallerAndNoOther) {
  const auto release = std::make_shared<Event>(), made = std::make_shared<Event>();
  BlockingCalls calls;
  EXPECT_FALSE(calls.Run([release] { release->Wait(); }, kShort));
  EXPECT_FALSE(calls.Run([made] { made->Set(); }, /*limit=*/std::chrono::hours(1)));  // at once
  EXPECT_FALSE(made->IsSet());
  release->Set();
  made->Wait();
  // Once the thread is idle, callers wait again.
  while (!calls.Run([] {}, kLong)) std::this_thread::yield();
}

TEST(BlockingCallsTest, TheDestructorDoesNotWaitForeverForALateCall) {
  const auto release = std::make_shared<Event>(), made = std::make_shared<Event>();
  {
    BlockingCalls calls;
    EXPECT_FALSE(calls.Run([release] { release->Wait(); }, kShort));
    EXPECT_FALSE(calls.Run([made] { made->Set(); }, kShort));
  }
  EXPECT_FALSE(made->IsSet());
  release->Set();
  made->Wait();  // made after the object was destroyed
}

}  // namespace
}  // namespace ddprun
