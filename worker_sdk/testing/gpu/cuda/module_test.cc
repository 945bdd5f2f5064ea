// Modules and kernels of the stand-in.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "worker_sdk/device/cuda/kernels.h"
#include "worker_sdk/testing/gpu/cuda/kernel.h"
#include "worker_sdk/testing/gpu/cuda/owners_for_test.h"

namespace ddprun::stand_in {
namespace {

class ModuleTest : public ::testing::Test {
 protected:
  ModuleTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    Ok(cuModuleLoadData(&module_, KernelsImage().data()), "cuModuleLoadData");
  }
  ~ModuleTest() override { cuModuleUnload(module_); }

  CUfunction Get(const char* name) {
    CUfunction function = nullptr;
    Ok(cuModuleGetFunction(&function, module_, name), name);
    return function;
  }
  template <typename... Arguments>
  CUresult Launch(CUfunction function, unsigned blocks, unsigned threads, Arguments... arguments) {
    void* parameters[] = {&arguments...};
    return cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream_.get(), parameters, nullptr);
  }

  const ScopedContext context_;
  const ScopedStream stream_;
  CUmodule module_ = nullptr;
};
using ModuleDeathTest = ModuleTest;

TEST_F(ModuleTest, EveryKernelHasAReference) {
  std::ifstream source("worker_sdk/device/cuda/kernels.cu");
  ASSERT_TRUE(source);
  int kernels = 0;
  for (std::string line; std::getline(source, line);) {
    std::smatch match;
    if (!std::regex_search(line, match, std::regex("^__global__ void (\\w+)\\("))) continue;
    EXPECT_NE(FindKernel(match[1].str()), nullptr) << match[1] << ": add it to kernel.cc";
    ++kernels;
  }
  EXPECT_GE(kernels, 9);
}

TEST_F(ModuleTest, ComputesAKernelWithAnyGrid) {
  const DeviceArray<float> inout({1, 2, 3, 4}, stream_), addend({10, 20, 30, 40}, stream_);
  EXPECT_EQ(Launch(Get("ScaleAddFloat32"), 7, 96, inout.get(), 2.0f, addend.get(), int64_t{3}), CUDA_SUCCESS);
  EXPECT_EQ(inout.Read(stream_), (std::vector<float>{12, 24, 36, 4}));
}

TEST_F(ModuleTest, ComputesAKernelWhoseThreadsExchangeValues) {
  const DeviceArray<float> in(std::vector<float>(5000, 2), stream_);
  const DeviceArray<double> sums(1), after(8), before(8);
  EXPECT_EQ(Launch(Get("SumOfSquaresFloat32"), 1, 32, sums.get(), after.get(), before.get(), int64_t{0},
                   in.get(), int64_t{5000}),
            CUDA_SUCCESS);
  EXPECT_EQ(sums.Read(stream_), std::vector<double>{4 * 4096});
  EXPECT_EQ(after.Read(stream_), std::vector<double>(8, 4 * 904 / 8));
}

TEST_F(ModuleTest, CopiesArgumentsAtTheLaunch) {
  const DeviceArray<float> out(1);
  ScopedHold hold(stream_);
  CUdeviceptr address = out.get();
  float value = 1;
  int64_t count = 1;
  void* parameters[] = {&address, &value, &count};
  Ok(cuLaunchKernel(Get("FillFloat32"), 1, 1, 1, 32, 1, 1, 0, stream_.get(), parameters, nullptr));
  value = 2;
  address = count = 0;
  hold.Release();
  EXPECT_EQ(out.Read(stream_), std::vector<float>{1});
}

TEST_F(ModuleTest, RefusesImagesAndNamesThatDoNotExist) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, "not an image, but some text"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(cuModuleGetFunction(&function, module_, "NoSuchKernel"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Launch(Get("FillFloat32"), 0, 32, CUdeviceptr{0}, 1.0f, int64_t{0}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch(Get("FillFloat32"), 1, 2048, CUdeviceptr{0}, 1.0f, int64_t{0}), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ModuleTest, TheEmptyImageHasAllKernels) {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  Ok(cuModuleLoadData(&module, ""));
  EXPECT_EQ(cuModuleGetFunction(&function, module, "FillFloat32"), CUDA_SUCCESS);
  Ok(cuModuleUnload(module));
}

TEST_F(ModuleDeathTest, AKernelThatWritesOutsideOfItsMemory) {
  const DeviceArray<float> out(64);
  const CUfunction fill = Get("FillFloat32");
  EXPECT_DEATH(
      {
        Launch(fill, 1, 32, out.get(), 1.0f, int64_t{65});
        cuStreamSynchronize(stream_.get());
      },
      "");
}

TEST_F(ModuleDeathTest, AKernelThatWritesALittleTooMuch) {
  EXPECT_DEATH(
      {
        const DeviceArray<float> out(60);
        Launch(Get("FillFloat32"), 1, 32, out.get(), 1.0f, int64_t{61});
        cuStreamSynchronize(stream_.get());
      },
      "misuse: cuMemFree_v2: work has written behind the 240 bytes");
}

TEST_F(ModuleDeathTest, FreeingTheMemoryOfALaunch) {
  EXPECT_DEATH(
      {
        const DeviceArray<float> out(64);
        StandInHold(stream_.get());
        Launch(Get("FillFloat32"), 1, 32, out.get(), 1.0f, int64_t{64});
      },
      "misuse: cuMemFree_v2: queued work or a registration uses the 256 bytes");
}

TEST_F(ModuleDeathTest, WrongLaunches) {
  const DeviceArray<double> out(1);
  float host = 0;
  EXPECT_DEATH(Launch(Get("FillFloat32"), 1, 32, &host, 1.0f, int64_t{1}), "is not device memory");
  EXPECT_DEATH(Launch(Get("SumOfSquaresFloat32"), 1, 33, out.get(), out.get(), int64_t{1}),
               "SumOfSquaresFloat32 needs a multiple of 32 threads, not 33");
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  Ok(cuModuleLoadData(&module, KernelsImage().data()));
  Ok(cuModuleGetFunction(&function, module, "FillFloat32"));
  Ok(cuModuleUnload(module));
  EXPECT_DEATH(Launch(function, 1, 32, out.get(), 1.0f, int64_t{1}), "no such function");
}

}  // namespace
}  // namespace ddprun::stand_in
