// Memory of the stand-in's devices: only its queued work can access it, and mistakes abort the process.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <vector>

#include "worker_sdk/testing/gpu/control.h"
#include "worker_sdk/testing/gpu/cuda/owners_for_test.h"

namespace ddprun::stand_in {
namespace {

class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using MemoryDeathTest = MemoryTest;

TEST_F(MemoryTest, CopiesAndFills) {
  const ScopedContext context;
  const ScopedStream stream;
  const DeviceArray<int> a({1, 2, 3, 4}, stream), b(4);
  Ok(cuMemcpyDtoDAsync(b.get(), a.get(), 3 * sizeof(int), stream.get()));
  Ok(cuMemsetD8Async(b.get() + 3 * sizeof(int), 1, sizeof(int), stream.get()));
  EXPECT_EQ(b.Read(stream), (std::vector{1, 2, 3, 0x01010101}));
}

TEST_F(MemoryTest, NewMemoryHoldsNoZeros) {
  const ScopedContext context;
  const ScopedStream stream;
  EXPECT_EQ(DeviceArray<int>(2).Read(stream), (std::vector{-1, -1}));
}

TEST_F(MemoryTest, PointersHaveTheAttributesOfTheirAllocation) {
  const ScopedContext context;
  const DeviceArray<int> array(100);
  const CUdeviceptr inside = array.get() + 40;
  CUcontext owner = nullptr;
  CUdeviceptr begin = 0;
  size_t size = 0;
  int device = -1;
  unsigned type = 0;
  Ok(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
  Ok(cuPointerGetAttribute(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
  Ok(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
  Ok(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
  Ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
  EXPECT_EQ(owner, context.get());
  EXPECT_EQ(begin, array.get());
  EXPECT_EQ(size, 400);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(
      cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&size)),
      CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, PinnedMemoryIsOfTheHost) {
  const ScopedContext context;
  void* pinned = nullptr;
  Ok(cuMemHostAlloc(&pinned, 100, 0));
  const auto address = reinterpret_cast<CUdeviceptr>(pinned);
  unsigned type = 0;
  Ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 99));
  EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 100),
            CUDA_ERROR_INVALID_VALUE);
  Ok(cuMemFreeHost(pinned));
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, TheSystemCannotAccessTheMemory) {
  const ScopedContext context;
  const DeviceArray<int> array(100);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], array.pointer(), sizeof(int)), -1);
  EXPECT_EQ(errno, EFAULT);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(MemoryTest, FreeMemoryShrinksAndGrows) {
  const ScopedContext context;
  size_t before = 0, during = 0, after = 0, total = 0;
  Ok(cuMemGetInfo(&before, &total));
  {
    const DeviceArray<char> array(1 << 20);
    Ok(cuMemGetInfo(&during, &total));
  }
  Ok(cuMemGetInfo(&after, &total));
  EXPECT_EQ(before - during, 1 << 20);
  EXPECT_EQ(before, after);
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, total + 1), CUDA_ERROR_OUT_OF_MEMORY);
}

// Under ASan the process exits with an error, and is not killed.
TEST_F(MemoryDeathTest, HostCodeCannotAccessTheMemory) {
  const ScopedContext context;
  const DeviceArray<int> array(100);
  EXPECT_DEATH(std::printf("%d", *static_cast<volatile int*>(array.pointer())), "");
  EXPECT_DEATH(*static_cast<volatile int*>(array.pointer() + 99) = 0, "");
}

TEST_F(MemoryDeathTest, FreeingMemoryThatQueuedWorkUses) {
  EXPECT_DEATH(
      {
        const ScopedContext context;
        const ScopedStream stream;
        const DeviceArray<char> array(1 << 20);
        StandInHold(stream.get());
        Ok(cuMemsetD8Async(array.get(), 0, 1 << 20, stream.get()));
        cuMemFree(array.get());
      },
      "misuse: cuMemFree_v2: queued work or a registration uses the 1048576 bytes .*DDPRUN_STAND_IN_SEED=");
}

TEST_F(MemoryDeathTest, UsingFreedMemory) {
  const ScopedContext context;
  const ScopedStream stream;
  CUdeviceptr address = 0;
  Ok(cuMemAlloc(&address, 100));
  Ok(cuMemFree(address));
  EXPECT_DEATH(cuMemsetD8Async(address, 0, 100, stream.get()),
               "misuse: cuMemsetD8Async: .*memory that was freed");
  EXPECT_DEATH(cuMemFree(address), "misuse: cuMemFree_v2: .*memory that was freed");
}

TEST_F(MemoryDeathTest, BytesOutsideOfAnAllocation) {
  const ScopedContext context;
  const ScopedStream stream;
  const DeviceArray<char> array(100);
  int host = 0;
  EXPECT_DEATH(cuMemsetD8Async(array.get() + 1, 0, 100, stream.get()),
               "100 bytes from byte 1 of an allocation of 100");
  EXPECT_DEATH(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(&host), 0, 4, stream.get()),
               "is not device memory");
  EXPECT_DEATH(cuMemFree(array.get() + 1), "is inside an allocation");
}

TEST_F(MemoryDeathTest, MemoryAndStreamOfTwoDevices) {
  EXPECT_DEATH(
      {
        setenv("DDPRUN_STAND_IN_DEVICES", "2", 1);
        const ScopedContext zero(0);
        const DeviceArray<char> array(100);
        const ScopedContext one(1);
        const ScopedStream stream;
        cuMemsetD8Async(array.get(), 0, 100, stream.get());
      },
      "is memory of device 0, not of device 1");
}

TEST_F(MemoryDeathTest, FreeingHostMemoryThatIsNotPinned) {
  const ScopedContext context;
  int host = 0;
  EXPECT_DEATH(cuMemFreeHost(&host), "is not pinned memory");
  void* pinned = nullptr;
  Ok(cuMemHostAlloc(&pinned, 100, 0));
  StandInCounts counts;
  StandInReport(&counts);
  EXPECT_EQ(counts.pinned, 1);
  Ok(cuMemFreeHost(pinned));
}

}  // namespace
}  // namespace ddprun::stand_in
