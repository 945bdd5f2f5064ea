// The launch helpers, over a driver that runs the kernels on the CPU: the arguments have the types and the order that the
// kernels expect.
#include "worker_sdk/device/cuda/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker_sdk/comm/half.h"
#include "worker_sdk/device/cuda/testing/fake_cuda.h"
#include "worker_sdk/device/cuda/testing/host_cuda.h"

// After host_cuda.h, which defines what the kernels use.
#include "worker_sdk/device/cuda/kernels.cu"

namespace ddprun {
namespace {

using testing::HasSubstr;

constexpr unsigned char kImage[] = {1};

using HostKernel = std::function<void(unsigned blocks, unsigned threads, void** parameters)>;

// Reads the parameters as cuLaunchKernel does: each address is that of a value of the kernel's type.
template <typename... Parameters>
HostKernel OnHost(void (*kernel)(Parameters...)) {
  return [kernel](unsigned blocks, unsigned threads, void** parameters) {
    [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
      LaunchOnHost(blocks, threads, kernel, *static_cast<Parameters*>(parameters[kIndex])...);
    }
    (std::index_sequence_for<Parameters...>());
  };
}

const std::map<std::string, HostKernel>& Kernels() {
  static const std::map<std::string, HostKernel> kernels = {
      {"FillFloat32", OnHost(FillFloat32)},
      {"ScaleFloat32", OnHost(ScaleFloat32)},
      {"ScaleAddFloat32", OnHost(ScaleAddFloat32)},
      {"CastFloat32ToFloat16", OnHost(CastFloat32ToFloat16)},
      {"CastFloat16ToFloat32", OnHost(CastFloat16ToFloat32)},
      {"CastFloat32ToBFloat16", OnHost(CastFloat32ToBFloat16)},
      {"CastBFloat16ToFloat32", OnHost(CastBFloat16ToFloat32)},
      {"MultiplyFloat32", OnHost(MultiplyFloat32)},
      {"CompressFloat32ToFloat16", OnHost(CompressFloat32ToFloat16)},
      {"CompressFloat32ToBFloat16", OnHost(CompressFloat32ToBFloat16)},
      {"SumOfSquaresFloat32", OnHost(SumOfSquaresFloat32)},
      {"AdamWFloat32", OnHost(AdamWFloat32)},
      {"SgdFloat32", OnHost(SgdFloat32)},
  };
  return kernels;
}

struct Launch {
  unsigned blocks = 0, threads = 0;
  CUstream stream = nullptr;
};
Launch last_launch;
int num_launches = 0;

class CudaKernelsTest : public testing::Test {
 protected:
  CudaKernelsTest() {
    num_launches = 0;
    cuda_.driver.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char* name) {
      const auto found = Kernels().find(name);
      if (found == Kernels().end()) return CUDA_ERROR_NOT_FOUND;
      *function = reinterpret_cast<CUfunction>(const_cast<HostKernel*>(&found->second));
      return CUDA_SUCCESS;
    };
    cuda_.driver.cuLaunchKernel = [](CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                     unsigned block_x, unsigned block_y, unsigned block_z,
                                     unsigned shared_bytes, CUstream stream, void** parameters,
                                     void** extra) {
      EXPECT_EQ(grid_y * grid_z * block_y * block_z, 1);
      EXPECT_EQ(shared_bytes, 0);
      EXPECT_EQ(extra, nullptr);
      last_launch = {grid_x, block_x, stream};
      ++num_launches;
      // The kernels compute the same with any grid, and this machine has few processors.
      (*reinterpret_cast<HostKernel*>(function))(1, 8, parameters);
      return CUDA_SUCCESS;
    };
  }

  std::shared_ptr<const CudaKernels> Load() { return CudaKernels::Load(context_, kImage).value(); }

  FakeCuda cuda_;
  std::shared_ptr<const CudaContext> context_ = CudaContext::Open(&cuda_.driver, 0).value();
};

TEST_F(CudaKernelsTest, AreLoadedOnceForAContext) {
  const auto kernels = Load();
  EXPECT_EQ(Load(), kernels);
  EXPECT_EQ(cuda_.num_calls("cuModuleLoadData"), 1);
  const auto other = CudaContext::Open(&cuda_.driver, 1).value();
  EXPECT_NE(CudaKernels::Load(other, kImage).value(), kernels);
  EXPECT_EQ(cuda_.num_calls("cuModuleLoadData"), 2);
}

TEST_F(CudaKernelsTest, ErrorsSayWhatIsMissing) {
  EXPECT_TRUE(IsFailedPrecondition(CudaKernels::Load(context_, {}).status()));
  cuda_.Fail("cuModuleLoadData", CUDA_ERROR_NO_BINARY_FOR_GPU);
  const Status old = CudaKernels::Load(context_, kImage).status();
  EXPECT_TRUE(IsFailedPrecondition(old));
  EXPECT_THAT(old.message(), HasSubstr("compute capability 8.0 and newer"));
  cuda_.Fail("cuModuleLoadData", CUDA_SUCCESS);
  cuda_.driver.cuModuleGetFunction = [](CUfunction*, CUmodule, const char* name) {
    return std::string(name) == "AdamWFloat32" ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
  };
  EXPECT_THAT(CudaKernels::Load(context_, kImage).status().message(),
              HasSubstr("cuModuleGetFunction(AdamWFloat32) on GPU 0: "));
  EXPECT_EQ(cuda_.num_calls("cuModuleUnload"), 1);
}

TEST_F(CudaKernelsTest, AreNotUnloadedFromALostDevice) {
  auto kernels = Load();
  cuda_.LoseDevice(CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_TRUE(IsDeviceLost(context_->Memory().status()));
  kernels.reset();
  EXPECT_EQ(cuda_.num_calls("cuModuleUnload"), 0);
}

TEST_F(CudaKernelsTest, TheGridCoversTheElementsButNotMoreThanTheDeviceRuns) {
  const auto kernels = Load();
  const auto stream = reinterpret_cast<CUstream>(0x77);
  std::vector<float> out(100'000);
  const std::pair<int64_t, unsigned> kBlocks[] = {{1, 1}, {256, 1}, {257, 2}, {100'000, 4 * 8}};
  for (const auto& [count, blocks] : kBlocks) {
    EXPECT_EQ(kernels->Fill(stream, out.data(), 1, count), OkStatus());
    EXPECT_EQ(last_launch.blocks, blocks) << count;
    EXPECT_EQ(last_launch.threads, 256);
    EXPECT_EQ(last_launch.stream, stream);
  }
  num_launches = 0;
  EXPECT_EQ(kernels->Fill(stream, nullptr, 1, 0), OkStatus());
  EXPECT_EQ(num_launches, 0);
}

TEST_F(CudaKernelsTest, FillScaleAndAdd) {
  const auto kernels = Load();
  std::vector<float> values(5, 7), addend = {1, 2, 3, 4, 5};
  EXPECT_EQ(kernels->Fill(nullptr, values.data(), 2, 4), OkStatus());
  EXPECT_EQ(values, (std::vector<float>{2, 2, 2, 2, 7}));
  EXPECT_EQ(kernels->Scale(nullptr, values.data(), 3, 5), OkStatus());
  EXPECT_EQ(values, (std::vector<float>{6, 6, 6, 6, 21}));
  EXPECT_EQ(kernels->ScaleAdd(nullptr, values.data(), 0.5f, addend.data(), 5), OkStatus());
  EXPECT_EQ(values, (std::vector<float>{4, 5, 6, 7, 15.5f}));
}

TEST_F(CudaKernelsTest, Casts) {
  const auto kernels = Load();
  const std::vector<float> in = {1, -2.5f, 65504, 0};
  std::vector<uint16_t> bits(4);
  std::vector<float> out(4);
  EXPECT_EQ(kernels->CastToFloat16(nullptr, bits.data(), in.data(), 4), OkStatus());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(bits[i], ddprun::Float16Of(in[i]));
  EXPECT_EQ(kernels->CastFromFloat16(nullptr, out.data(), bits.data(), 4), OkStatus());
  EXPECT_EQ(out, in);
  EXPECT_EQ(kernels->CastToBFloat16(nullptr, bits.data(), in.data(), 4), OkStatus());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(bits[i], ddprun::BFloat16Of(in[i]));
  EXPECT_EQ(kernels->CastFromBFloat16(nullptr, out.data(), bits.data(), 4), OkStatus());
  EXPECT_EQ(out, (std::vector<float>{1, -2.5f, 65536, 0}));
}

TEST_F(CudaKernelsTest, SumOfSquares) {
  const auto kernels = Load();
  const std::vector<float> in(4097, 2);
  std::vector<double> sums(1), after(8, -1), before(8);
  EXPECT_EQ(kernels->SumOfSquares(nullptr, sums.data(), after.data(), before.data(), 0, in.data(), 4097),
            OkStatus());
  EXPECT_EQ(sums, std::vector<double>{4 * 4096});
  EXPECT_EQ(after, (std::vector<double>{4, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(kernels->SumOfSquares(nullptr, sums.data(), before.data(), after.data(), 1, in.data(), 1),
            OkStatus());
  EXPECT_EQ(before, (std::vector<double>{4, 4, 0, 0, 0, 0, 0, 0}));
  num_launches = 0;
  EXPECT_EQ(kernels->SumOfSquares(nullptr, sums.data(), before.data(), after.data(), 1, in.data(), 0),
            OkStatus());
  EXPECT_EQ(num_launches, 0);
}

TEST_F(CudaKernelsTest, Compress) {
  const auto kernels = Load();
  const std::vector<float> in = {3, 6};
  std::vector<uint16_t> out(2);
  std::vector<float> residual = {1, 0};
  EXPECT_EQ(kernels->CompressToFloat16(nullptr, out.data(), in.data(), 3, nullptr, 2), OkStatus());
  EXPECT_EQ(out, (std::vector<uint16_t>{Float16Of(1), Float16Of(2)}));
  EXPECT_EQ(kernels->CompressToBFloat16(nullptr, out.data(), in.data(), 3, residual.data(), 2), OkStatus());
  EXPECT_EQ(out, (std::vector<uint16_t>{BFloat16Of(2), BFloat16Of(2)}));
  EXPECT_EQ(residual, (std::vector<float>{0, 0}));
}

TEST_F(CudaKernelsTest, AdamW) {
  const auto kernels = Load();
  std::vector<float> params = {1}, m = {2}, v = {4}, grads = {8};
  const AdamWScalars<float> scalars{.rate = 0.25f, .epsilon = 1, .keep = 0.5f, .beta1 = 0.75f, .beta2 = 0.5f};
  EXPECT_EQ(kernels->AdamW(nullptr, params.data(), m.data(), v.data(), grads.data(), scalars, 1), OkStatus());
  EXPECT_FLOAT_EQ(m[0], 0.75f * 2 + 0.25f * 8);
  EXPECT_FLOAT_EQ(v[0], 0.5f * 4 + 0.5f * 64);
  EXPECT_FLOAT_EQ(params[0], 0.5f - 0.25f * m[0] / (std::sqrt(v[0]) + 1));
}

TEST_F(CudaKernelsTest, Sgd) {
  const auto kernels = Load();
  std::vector<float> params = {1}, v = {4}, grads = {8};
  const SgdScalars scalars{.rate = 0.25f, .keep = 0.5f, .momentum = 0.75f};
  EXPECT_EQ(kernels->Sgd(nullptr, params.data(), v.data(), grads.data(), scalars, 1), OkStatus());
  EXPECT_FLOAT_EQ(v[0], 0.75f * 4 + 8);
  EXPECT_FLOAT_EQ(params[0], 0.5f - 0.25f * 11);
  EXPECT_EQ(kernels->Sgd(nullptr, params.data(), nullptr, grads.data(), scalars, 1), OkStatus());
  EXPECT_FLOAT_EQ(params[0], 0.5f * (0.5f - 0.25f * 11) - 0.25f * 8);
}

TEST_F(CudaKernelsTest, AFailedLaunchIsReported) {
  const auto kernels = Load();
  cuda_.driver.cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, CUstream, void**, void**) { return CUDA_ERROR_LAUNCH_FAILED; };
  float value = 0;
  EXPECT_TRUE(IsDeviceLost(kernels->Fill(nullptr, &value, 1, 1)));
  EXPECT_TRUE(context_->lost());
  cuda_.LoseDevice(CUDA_ERROR_LAUNCH_FAILED);
}

}  // namespace
}  // namespace ddprun
