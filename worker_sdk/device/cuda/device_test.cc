// Streams, events and memory over a driver that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "worker_sdk/core/deadline.h"
#include "worker_sdk/device/cuda/context.h"
#include "worker_sdk/device/cuda/event.h"
#include "worker_sdk/device/cuda/memory.h"
#include "worker_sdk/device/cuda/stream.h"
#include "worker_sdk/device/cuda/testing/fake_cuda.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CudaTest : public testing::Test {
 protected:
  FakeCuda cuda_;
  std::shared_ptr<const CudaContext> context_ = CudaContext::Open(&cuda_.driver, 0).value();
};

TEST_F(CudaTest, AnEventHappensOnceItIsRecorded) {
  const CudaStream stream = CudaStream::Create(context_).value();
  CudaEvent event = CudaEvent::Create(context_).value();
  EXPECT_TRUE(IsFailedPrecondition(event.Happened().status()));
  EXPECT_TRUE(IsFailedPrecondition(event.MakeWait(stream.get())));
  EXPECT_EQ(cuda_.num_calls("cuEventQuery"), 0);
  EXPECT_EQ(event.Record(stream.get()), OkStatus());
  EXPECT_EQ(event.MakeWait(stream.get()), OkStatus());
  EXPECT_FALSE(event.Happened().value());
  EXPECT_FALSE(stream.Idle().value());
  cuda_.happened = true;
  EXPECT_TRUE(event.Happened().value());
  EXPECT_TRUE(stream.Idle().value());
}

TEST_F(CudaTest, AWaitEndsWithTheEvent) {
  CudaEvent event = CudaEvent::Create(context_).value();
  EXPECT_EQ(event.Record(nullptr), OkStatus());
  cuda_.happened = true;
  cuda_.num_not_ready = 30;  // more than are made without a pause
  EXPECT_EQ(event.Await(TimePoint::max(), "the copy"), OkStatus());
  EXPECT_EQ(cuda_.num_calls("cuEventQuery"), 31);
}

TEST_F(CudaTest, AWaitEndsWithTheDeadlineAndSaysForWhat) {
  CudaEvent event = CudaEvent::Create(context_).value();
  EXPECT_EQ(event.Record(nullptr), OkStatus());
  EXPECT_EQ(event.Await(TimePoint(), "the copy of the parameters"),
            DeadlineExceededError("GPU 0 has not finished the copy of the parameters after 0.0 s"));
  EXPECT_EQ(cuda_.num_calls("cuEventQuery"), 1);
  EXPECT_TRUE(IsDeadlineExceeded(event.Await(DeadlineAfter(milliseconds(5)), "the copy")));
  const CudaStream stream = CudaStream::Create(context_).value();
  EXPECT_TRUE(IsDeadlineExceeded(stream.Await(TimePoint(), "the copy")));
  cuda_.happened = true;
  EXPECT_EQ(event.Await(TimePoint(), "the copy"),
            OkStatus());  // the deadline has passed, but the event has happened
}

TEST_F(CudaTest, AWaitEndsWithAnErrorOfTheDevice) {
  CudaEvent event = CudaEvent::Create(context_).value();
  EXPECT_EQ(event.Record(nullptr), OkStatus());
  cuda_.Fail("cuEventQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  const Status status = event.Await(TimePoint::max(), "the copy");
  EXPECT_TRUE(IsDeviceLost(status));
  EXPECT_THAT(status.message(), AllOf(HasSubstr("waiting for the copy: cuEventQuery on GPU 0: "
                                                "CUDA_ERROR_ILLEGAL_ADDRESS"),
                                      HasSubstr("an illegal memory access")));
  cuda_.LoseDevice(CUDA_ERROR_ILLEGAL_ADDRESS);  // nothing is destroyed, so nothing may be expected to be
}

TEST_F(CudaTest, AnEventThatCouldNotBeRecordedIsNotRecorded) {
  CudaEvent event = CudaEvent::Create(context_).value();
  cuda_.Fail("cuEventRecord", CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(IsInternal(event.Record(nullptr)));
  EXPECT_TRUE(IsFailedPrecondition(event.Happened().status()));
}

TEST_F(CudaTest, WhatWasNotCreatedIsNotDestroyed) {
  for (const char* name : {"cuEventCreate", "cuStreamCreateWithPriority", "cuMemAlloc_v2", "cuMemHostAlloc"})
    cuda_.Fail(name, CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(IsInternal(CudaEvent::Create(context_).status()));
  EXPECT_TRUE(IsInternal(CudaStream::Create(context_).status()));
  EXPECT_TRUE(IsInternal(DeviceMemory::Allocate(context_, 1).status()));
  EXPECT_TRUE(IsInternal(PinnedMemory::Allocate(context_, 1).status()));
  for (const char* name : {"cuEventDestroy_v2", "cuStreamDestroy_v2", "cuMemFree_v2", "cuMemFreeHost"})
    EXPECT_EQ(cuda_.num_calls(name), 0) << name;
}

TEST_F(CudaTest, OwnersKeepTheContextAndMove) {
  std::optional<CudaStream> stream = CudaStream::Create(context_).value();
  std::optional<CudaEvent> event = CudaEvent::Create(context_).value();
  DeviceMemory device = DeviceMemory::Allocate(context_, 100).value();
  PinnedMemory pinned = PinnedMemory::Allocate(context_, 200).value();
  context_.reset();
  EXPECT_EQ(cuda_.num_live(), 5);
  const DeviceMemory moved = std::move(device);
  EXPECT_NE(moved.data(), nullptr);
  EXPECT_EQ(moved.num_bytes(), 100);
  pinned = PinnedMemory();
  EXPECT_EQ(cuda_.num_live(), 4);
  CudaStream other = *std::move(stream);
  stream.reset();
  event.reset();
  EXPECT_EQ(cuda_.num_live(), 3);
  EXPECT_NE(other.get(), nullptr);
}  // FakeCuda checks that nothing is left

TEST_F(CudaTest, OwnersOfALostDeviceAreDestroyedWithoutCalls) {
  {
    const CudaStream stream = CudaStream::Create(context_).value();
    CudaEvent event = CudaEvent::Create(context_).value();
    const DeviceMemory device = DeviceMemory::Allocate(context_, 100).value();
    const PinnedMemory pinned = PinnedMemory::Allocate(context_, 100).value();
    cuda_.LoseDevice(CUDA_ERROR_ECC_UNCORRECTABLE);
    EXPECT_TRUE(IsDeviceLost(event.Record(stream.get())));
    EXPECT_TRUE(context_->lost());
    EXPECT_TRUE(IsDeviceLost(DeviceMemory::Allocate(context_, 1).status()));
    context_.reset();
    // If one of these calls were made, it would block the test.
    for (const char* name : {"cuEventDestroy_v2", "cuStreamDestroy_v2", "cuMemFree_v2", "cuMemFreeHost",
                             "cuDevicePrimaryCtxRelease_v2"})
      cuda_.Block(name);
  }
  for (const char* name : {"cuEventDestroy_v2", "cuStreamDestroy_v2", "cuMemFree_v2", "cuMemFreeHost",
                           "cuDevicePrimaryCtxRelease_v2"})
    EXPECT_EQ(cuda_.num_calls(name), 0) << name;
}

TEST_F(CudaTest, ADeviceThatIsLostDuringAnAllocationIsItsError) {
  static std::atomic<int> num_calls;
  num_calls = 0;
  // Lost between the first call, which the caller makes, and the second, which the thread makes.
  cuda_.driver.cuCtxPushCurrent_v2 = [](CUcontext) {
    return ++num_calls == 2 ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
  };
  cuda_.driver.cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; };
  const Status status = DeviceMemory::Allocate(context_, 2000).status();
  EXPECT_EQ(num_calls, 2);
  EXPECT_TRUE(IsDeviceLost(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("cuMemAlloc of 2000 bytes on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_TRUE(context_->lost());
  EXPECT_EQ(cuda_.num_calls("cuMemAlloc_v2"), 0);
  cuda_.LoseDevice(CUDA_ERROR_ILLEGAL_ADDRESS);  // whose context is not released
}

TEST_F(CudaTest, AnAllocationThatFailsSaysWhatIsFree) {
  cuda_.Fail("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY);
  const Status status = DeviceMemory::Allocate(context_, 2000).status();
  EXPECT_TRUE(IsResourceExhausted(status));
  EXPECT_THAT(status.message(), AllOf(HasSubstr("cuMemAlloc of 2000 bytes on GPU 0: "),
                                      HasSubstr("; 1000 of 5000 bytes are free")));
  cuda_.Fail("cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(IsResourceExhausted(PinnedMemory::Allocate(context_, 2000).status()));
}

TEST_F(CudaTest, NoMemoryNeedsNoCalls) {
  const DeviceMemory memory = DeviceMemory::Allocate(context_, 0).value();
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_EQ(memory.num_bytes(), 0);
  EXPECT_EQ(CopyOnDevice(*context_, nullptr, nullptr, 0, nullptr), OkStatus());
  EXPECT_EQ(CopyToHost(*context_, nullptr, nullptr, 0, nullptr), OkStatus());
  EXPECT_EQ(CopyToDevice(*context_, nullptr, nullptr, 0, nullptr), OkStatus());
  EXPECT_EQ(FillBytes(*context_, nullptr, 0, 0, nullptr), OkStatus());
  EXPECT_EQ(cuda_.num_calls("cuMemAlloc_v2"), 0);
}

TEST_F(CudaTest, AnAllocationThatBlocksEndsWithItsLimitAndIsFreedLater) {
  cuda_.Block("cuMemAlloc_v2");
  const Status status = DeviceMemory::Allocate(context_, 64, milliseconds(1)).status();
  EXPECT_TRUE(IsDeadlineExceeded(status));
  EXPECT_THAT(status.message(), HasSubstr("cuMemAlloc of 64 bytes on GPU 0 has not returned"));
  cuda_.Release();
  while (cuda_.num_calls("cuMemFree_v2") == 0 || cuda_.num_live() > 1) std::this_thread::yield();
}

TEST_F(CudaTest, MemoryThatCannotBeFreedYetDelaysNobodyForLong) {
  std::vector<DeviceMemory> memory;
  for (int i = 0; i < 20; ++i) memory.push_back(DeviceMemory::Allocate(context_, 64).value());
  cuda_.Block("cuMemFree_v2");
  memory.clear();  // one second, not twenty; forever without the limit
  EXPECT_EQ(cuda_.num_calls("cuMemFree_v2"), 1);
  EXPECT_EQ(cuda_.num_live(), 21);
  context_.reset();
  cuda_.Release();
  while (cuda_.num_live() > 0) std::this_thread::yield();
}

TEST_F(CudaTest, CopiesAndFillsAreQueued) {
  const PinnedMemory pinned = PinnedMemory::Allocate(context_, 8).value();
  const DeviceMemory device = DeviceMemory::Allocate(context_, 8).value();
  EXPECT_EQ(CopyToDevice(*context_, device.data(), pinned.data(), 8, nullptr), OkStatus());
  EXPECT_EQ(CopyOnDevice(*context_, device.data(), device.data(), 4, nullptr), OkStatus());
  EXPECT_EQ(CopyToHost(*context_, pinned.data(), device.data(), 8, nullptr), OkStatus());
  EXPECT_EQ(FillBytes(*context_, device.data(), 0xFF, 8, nullptr), OkStatus());
  for (const char* name :
       {"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemsetD8Async"})
    EXPECT_EQ(cuda_.num_calls(name), 1) << name;
  cuda_.Fail("cuMemcpyHtoDAsync_v2", CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(CopyToDevice(*context_, device.data(), pinned.data(), 8, nullptr).message(),
              HasSubstr("cuMemcpyHtoDAsync on GPU 0: "));
}

TEST_F(CudaTest, CopiesFromPageableMemoryAreRefused) {
  const DeviceMemory device = DeviceMemory::Allocate(context_, 8).value();
  EXPECT_EQ(InfoOf(*context_, device.data()).value().kind, MemoryKind::kPinned);  // the fake's answer
  cuda_.Fail("cuPointerGetAttribute", CUDA_ERROR_INVALID_VALUE);
  char pageable[8];
  EXPECT_EQ(InfoOf(*context_, pageable).value().kind, MemoryKind::kPageable);
  EXPECT_TRUE(IsInvalidArgument(CopyToDevice(*context_, device.data(), pageable, 8, nullptr)));
  EXPECT_TRUE(IsInvalidArgument(CopyToHost(*context_, pageable, device.data(), 8, nullptr)));
  EXPECT_EQ(cuda_.num_calls("cuMemcpyHtoDAsync_v2") + cuda_.num_calls("cuMemcpyDtoHAsync_v2"), 0);
}

}  // namespace
}  // namespace ddprun
