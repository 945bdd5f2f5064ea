// Faults of the stand-in's driver. Each case is a process of its own, because the environment is read once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "worker_sdk/testing/gpu/control.h"
#include "worker_sdk/testing/gpu/cuda/owners_for_test.h"

namespace ddprun::stand_in {
namespace {

class FaultDeathTest : public ::testing::Test {
 protected:
  FaultDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Exits with 0 if `fits`.
[[noreturn]] void ExitIf(bool fits) { std::exit(fits ? 0 : 1); }

void Set(const char* name, const char* value) {
  setenv((std::string("DDPRUN_STAND_IN_") + name).c_str(), value, 1);
}

TEST_F(FaultDeathTest, Devices) {
  EXPECT_EXIT(
      {
        Set("DEVICES", "3");
        Ok(cuInit(0));
        int count = 0;
        char name[20];
        CUuuid a;
        CUuuid b;
        Ok(cuDeviceGetCount(&count));
        Ok(cuDeviceGetName(name, sizeof name, 2));
        Ok(cuDeviceGetUuid_v2(&a, 1));
        Ok(cuDeviceGetUuid_v2(&b, 2));
        CUdevice none = 0;
        ExitIf(count == 3 && std::strcmp(name, "Stand-in 2") == 0 && std::memcmp(&a, &b, sizeof a) != 0 &&
               cuDeviceGet(&none, 3) == CUDA_ERROR_INVALID_DEVICE);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(FaultDeathTest, NoDevice) {
  EXPECT_EXIT(
      {
        Set("DEVICES", "0");
        int count = 0;
        ExitIf(cuInit(0) == CUDA_ERROR_NO_DEVICE && cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(FaultDeathTest, InitErrorAndOldDriver) {
  EXPECT_EXIT(
      {
        Set("INIT_ERROR", "803");
        Set("DRIVER_VERSION", "11040");
        int version = 0;
        Ok(cuDriverGetVersion(&version));
        ExitIf(cuInit(0) == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH && version == 11040);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(FaultDeathTest, TheDriverIsThatOfTheHeaderOtherwise) {
  int version = 0;
  Ok(cuDriverGetVersion(&version));
  EXPECT_EQ(version, CUDA_VERSION);
}

TEST_F(FaultDeathTest, OneAllocationFails) {
  EXPECT_EXIT(
      {
        Set("NO_MEMORY_AT", "2");
        bool fits = false;
        {
          const ScopedContext context;
          CUdeviceptr address[3] = {};
          const CUresult first = cuMemAlloc(&address[0], 1);
          const CUresult second = cuMemAlloc(&address[1], 1);
          fits = first == CUDA_SUCCESS && second == CUDA_ERROR_OUT_OF_MEMORY &&
                 cuMemAlloc(&address[2], 1) == CUDA_SUCCESS;
          Ok(cuMemFree(address[0]));
          Ok(cuMemFree(address[2]));
        }
        ExitIf(fits);
      },
      ::testing::ExitedWithCode(0), "");
}

// Runs until the device is lost. The owners' calls fail as well, and nothing counts as left.
bool AllCallsFailAfterTheLoss(CUresult expected) {
  const ScopedContext owner;
  const ScopedStream stream;
  const ScopedEvent event;
  const DeviceArray<char> array(1);
  ScopedHold hold(stream);
  for (int i = 0; i < 3; ++i) Ok(cuMemsetD8Async(array.get(), i, 1, stream.get()));
  Ok(cuEventRecord(event.get(), stream.get()));
  hold.Release();
  CUresult query = CUDA_ERROR_NOT_READY;
  while (query == CUDA_ERROR_NOT_READY) query = cuEventQuery(event.get());
  CUdeviceptr address = 0;
  CUcontext context = nullptr;
  StandInCounts counts;
  StandInReport(&counts);
  return query == expected && cuMemAlloc(&address, 1) == expected && cuMemFree(array.get()) == expected &&
         cuStreamDestroy(stream.get()) == expected && cuEventDestroy(event.get()) == expected &&
         cuDevicePrimaryCtxRetain(&context, 0) == expected && counts.streams == 0 && counts.contexts == 0;
}

TEST_F(FaultDeathTest, ALostDeviceFailsAllCallsForEver) {
  EXPECT_EXIT(
      {
        Set("LOST_AFTER", "2");
        ExitIf(AllCallsFailAfterTheLoss(CUDA_ERROR_ILLEGAL_ADDRESS));
      },
      ::testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(
      {
        Set("LOST_AFTER", "3");
        Set("LOST_ERROR", "46");
        ExitIf(AllCallsFailAfterTheLoss(CUDA_ERROR_DEVICE_UNAVAILABLE));
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(FaultDeathTest, ATestLosesADevice) {
  EXPECT_EXIT(
      {
        bool fits = false;
        {
          const ScopedContext owner;
          const ScopedStream stream;
          const DeviceArray<char> array({5}, stream);
          fits = array.Read(stream) == std::vector<char>{5};
          StandInLoseDevice(0);
          fits = fits && cuMemsetD8Async(array.get(), 0, 1, stream.get()) == CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        ExitIf(fits);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(FaultDeathTest, AnotherDeviceGoesOn) {
  EXPECT_EXIT(
      {
        Set("DEVICES", "2");
        Set("LOST_AFTER", "1");
        bool fits = false;
        {
          const ScopedContext lost(0);
          const ScopedStream stream;
          const ScopedEvent event;
          const DeviceArray<char> array(1);
          ScopedHold hold(stream);
          Ok(cuMemsetD8Async(array.get(), 0, 1, stream.get()));
          Ok(cuEventRecord(event.get(), stream.get()));
          hold.Release();
          const ScopedContext healthy(1);
          const ScopedStream other;
          while (cuEventQuery(event.get()) == CUDA_ERROR_NOT_READY) std::this_thread::yield();
          fits = cuEventQuery(event.get()) == CUDA_ERROR_ILLEGAL_ADDRESS &&
                 DeviceArray<char>({5}, other).Read(other) == std::vector<char>{5};
        }
        ExitIf(fits);
      },
      ::testing::ExitedWithCode(0), "^$");
}

// A stream of a healthy device does not hang because of work on a lost one.
TEST_F(FaultDeathTest, EventsOfALostDeviceHappen) {
  EXPECT_EXIT(
      {
        Set("DEVICES", "2");
        Set("LOST_AFTER", "1");
        {
          const ScopedContext lost(0);
          const ScopedStream stream;
          const ScopedEvent event;
          const DeviceArray<char> array(1);
          ScopedHold hold(stream);
          Ok(cuMemsetD8Async(array.get(), 0, 1, stream.get()));
          Ok(cuEventRecord(event.get(), stream.get()));
          const ScopedContext healthy(1);
          const ScopedStream other;
          Ok(cuStreamWaitEvent(other.get(), event.get(), 0));
          hold.Release();
          other.Synchronize();
        }
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

TEST_F(FaultDeathTest, ErrorsHaveNamesAndTexts) {
  const char* text = nullptr;
  Ok(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  Ok(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ(text, "an illegal memory access was encountered");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

}  // namespace
}  // namespace ddprun::stand_in
