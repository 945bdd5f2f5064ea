// The stand-in's cuBLAS: products in the order of the handle's stream, and mistakes that abort the process.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <vector>

#include "worker_sdk/testing/gpu/control.h"
#include "worker_sdk/testing/gpu/cublas/declarations.h"
#include "worker_sdk/testing/gpu/cuda/owners_for_test.h"

namespace ddprun::stand_in {
namespace {

class CublasTest : public ::testing::Test {
 protected:
  CublasTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using CublasDeathTest = CublasTest;

constexpr float kOne = 1, kZero = 0;
constexpr int kM = 3, kN = 4, kK = 5;

// A context, a stream, and a handle for it.
struct Gpu {
  explicit Gpu(int device = 0) : context(device) {
    if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) std::exit(2);
    if (cublasSetStream(handle, stream.get()) != CUBLAS_STATUS_SUCCESS) std::exit(3);
  }
  ~Gpu() {
    if (handle != nullptr) cublasDestroy(handle);
  }
  cublasStatus_t Multiply(const float* a, const float* b, float* c, int lda = kM) const {
    return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &kOne, a, lda, b, kK, &kZero, c, kM);
  }

  const ScopedContext context;
  const ScopedStream stream;
  cublasHandle_t handle = nullptr;
};

std::vector<float> Numbers(int count) {
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i) values[i] = static_cast<float>(i % 7 - 3);
  return values;
}

TEST_F(CublasTest, ProductsOfAllOperandsAndBatches) {
  const Gpu gpu;
  constexpr int kBatch = 2;
  const std::vector<float> left = Numbers(kBatch * kM * kK), right = Numbers(kBatch * kK * kN);
  const DeviceArray<float> a(left, gpu.stream), b(right, gpu.stream);
  for (const cublasOperation_t a_op : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    for (const cublasOperation_t b_op : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      const DeviceArray<float> c(Numbers(kBatch * kM * kN), gpu.stream);
      constexpr float kAlpha = 2, kBeta = 3;
      const int lda = a_op == CUBLAS_OP_N ? kM : kK, ldb = b_op == CUBLAS_OP_N ? kK : kN;
      ASSERT_EQ(
          cublasSgemmStridedBatched(gpu.handle, a_op, b_op, kM, kN, kK, &kAlpha, a.pointer(), lda, kM * kK,
                                    b.pointer(), ldb, kK * kN, &kBeta, c.pointer(), kM, kM * kN, kBatch),
          CUBLAS_STATUS_SUCCESS);
      std::vector<float> expected = Numbers(kBatch * kM * kN);
      for (int p = 0; p < kBatch; ++p) {
        for (int i = 0; i < kM; ++i) {
          for (int j = 0; j < kN; ++j) {
            float sum = 0;
            for (int k = 0; k < kK; ++k) {
              sum += left[p * kM * kK + (a_op == CUBLAS_OP_N ? i + k * kM : k + i * kK)] *
                     right[p * kK * kN + (b_op == CUBLAS_OP_N ? k + j * kK : j + k * kN)];
            }
            float& value = expected[p * kM * kN + i + j * kM];
            value = kAlpha * sum + kBeta * value;
          }
        }
      }
      EXPECT_EQ(c.Read(gpu.stream), expected) << a_op << " " << b_op;
    }
  }
}

TEST_F(CublasTest, RunsInTheStreamOfTheHandle) {
  const Gpu gpu;
  const ScopedStream other;
  const DeviceArray<float> a(kM * kK), b(Numbers(kK * kN), gpu.stream), c(Numbers(kM * kN), gpu.stream);
  ScopedHold hold(gpu.stream);
  Ok(cuMemsetD8Async(a.get(), 0, kM * kK * sizeof(float), gpu.stream.get()));
  ASSERT_EQ(gpu.Multiply(a.pointer(), b.pointer(), c.pointer()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(c.Read(other), Numbers(kM * kN));  // the product waits for its stream
  hold.Release();
  EXPECT_EQ(c.Read(gpu.stream), std::vector<float>(kM * kN, 0));
}

TEST_F(CublasDeathTest, LongChainsAreCutInSingleProductsOnly) {
  // One element: 2^24, then ones, which are lost one by one but not as the sum of a piece.
  const Gpu gpu;
  constexpr int kDepth = 512;
  std::vector<float> ones(kDepth, 1);
  std::vector<float> values = ones;
  values[0] = 0x1p24f;
  const DeviceArray<float> a(values, gpu.stream), b(ones, gpu.stream), c(1);
  ASSERT_EQ(cublasSgemm(gpu.handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, kDepth, &kOne, a.pointer(), 1,
                        b.pointer(), kDepth, &kZero, c.pointer(), 1),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(c.Read(gpu.stream)[0], 0x1p24f + 256);
  ASSERT_EQ(cublasSgemmStridedBatched(gpu.handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, kDepth, &kOne, a.pointer(),
                                      1, 0, b.pointer(), kDepth, 0, &kZero, c.pointer(), 1, 0, 1),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(c.Read(gpu.stream)[0], 0x1p24f);
}

TEST_F(CublasTest, ASetStreamTakesTheWorkspaceAway) {
  const Gpu gpu;
  const DeviceArray<char> workspace(4096);
  const DeviceArray<float> a(Numbers(kM * kK), gpu.stream), b(Numbers(kK * kN), gpu.stream), c(kM * kN);
  EXPECT_EQ(cublasSetWorkspace(gpu.handle, workspace.pointer() + 1, 1024), CUBLAS_STATUS_INVALID_VALUE);
  ASSERT_EQ(cublasSetWorkspace(gpu.handle, workspace.pointer(), 4096), CUBLAS_STATUS_SUCCESS);
  Ok(cuMemsetD8Async(workspace.get(), 1, 4096, gpu.stream.get()));
  ASSERT_EQ(gpu.Multiply(a.pointer(), b.pointer(), c.pointer()), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(workspace.Read(gpu.stream)[0], 1);  // the product has used it
  ASSERT_EQ(cublasSetStream(gpu.handle, gpu.stream.get()), CUBLAS_STATUS_SUCCESS);
  Ok(cuMemsetD8Async(workspace.get(), 1, 4096, gpu.stream.get()));
  ASSERT_EQ(gpu.Multiply(a.pointer(), b.pointer(), c.pointer()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(workspace.Read(gpu.stream)[0], 1);
}

// Each function makes one mistake. The names of the cases are in the order of the table in README.md.
void HostMemory() {
  const Gpu gpu;
  const DeviceArray<float> a(kM * kK), b(kK * kN);
  float c[kM * kN];
  gpu.Multiply(a.pointer(), b.pointer(), c);
}

void AnotherContext() {
  setenv("DDPRUN_STAND_IN_DEVICES", "2", 1);
  const Gpu gpu;
  const DeviceArray<float> a(kM * kK), b(kK * kN), c(kM * kN);
  const ScopedContext second(1);
  gpu.Multiply(a.pointer(), b.pointer(), c.pointer());
}

void StreamOfAnotherDevice() {
  setenv("DDPRUN_STAND_IN_DEVICES", "2", 1);
  const ScopedContext second(1);
  const ScopedStream stream;
  const Gpu gpu;
  cublasSetStream(gpu.handle, stream.get());
}

void LeadingDimension() {
  const Gpu gpu;
  const DeviceArray<float> a(kM * kK), b(kK * kN), c(kM * kN);
  gpu.Multiply(a.pointer(), b.pointer(), c.pointer(), kM - 1);
}

void BehindTheEnd() {
  const Gpu gpu;
  const DeviceArray<float> a(kM * kK), b(kK * kN - 1), c(kM * kN);
  gpu.Multiply(a.pointer(), b.pointer(), c.pointer());
}

void ResultIsAFactor() {
  const Gpu gpu;
  const DeviceArray<float> a(kM * kK), b(kK * kN);
  gpu.Multiply(a.pointer(), b.pointer(), a.pointer());
}

void FreedOperand() {
  const Gpu gpu;
  const DeviceArray<float> a(kM * kK), b(kK * kN);
  const ScopedHold hold(gpu.stream);
  const DeviceArray<float> c(kM * kN);
  gpu.Multiply(a.pointer(), b.pointer(), c.pointer());
}

void FreedWorkspace() {
  const Gpu gpu;
  const DeviceArray<float> a(kM * kK), b(kK * kN), c(kM * kN);
  const ScopedHold hold(gpu.stream);
  const DeviceArray<char> workspace(4096);
  cublasSetWorkspace(gpu.handle, workspace.pointer(), 4096);
  gpu.Multiply(a.pointer(), b.pointer(), c.pointer());
}

void DefaultStream() {
  const ScopedContext context;
  const DeviceArray<float> a(kM * kK), b(kK * kN), c(kM * kN);
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, kM, kN, kK, &kOne, a.pointer(), kM, b.pointer(), kK, &kZero,
              c.pointer(), kM);
}

void DestroyedHandle() {
  Gpu gpu;
  cublasDestroy(gpu.handle);
  cublasDestroy(gpu.handle);
}

void Tf32() {
  const Gpu gpu;
  cublasSetMathMode(gpu.handle, CUBLAS_TF32_TENSOR_OP_MATH);
}

void LeftAtExit() {
  const ScopedContext context;
  cublasHandle_t handle = nullptr;
  cublasCreate(&handle);
}

TEST_F(CublasDeathTest, MisuseAborts) {
  const struct {
    const char* name;
    void (*mistake)();
    const char* message;
  } kCases[] = {
      {"HostMemory", HostMemory, "cublasSgemm_v2: 0x[0-9a-f]+ is not device memory"},
      {"AnotherContext", AnotherContext, "the handle is of device 0, the current context of device 1"},
      {"StreamOfAnotherDevice", StreamOfAnotherDevice, "the stream is of device 1, the handle of device 0"},
      {"LeadingDimension", LeadingDimension, "the leading dimension of A is 2, its columns have 3"},
      {"BehindTheEnd", BehindTheEnd, "80 bytes from byte 0 of an allocation of 76"},
      {"ResultIsAFactor", ResultIsAFactor, "the result overlaps A"},
      {"FreedOperand", FreedOperand, "cuMemFree.*: queued work or a registration uses the 48 bytes"},
      {"FreedWorkspace", FreedWorkspace, "cuMemFree.*: queued work or a registration uses the 4096 bytes"},
      {"DefaultStream", DefaultStream, "cublasSgemm_v2: on the default stream"},
      {"DestroyedHandle", DestroyedHandle, "no such handle"},
      {"Tf32", Tf32, "mode 3 rounds the factors"},
      {"LeftAtExit", LeftAtExit, "the context still has objects: .*, handles: 1"},
  };
  for (const auto& [name, mistake, message] : kCases) {
    SCOPED_TRACE(name);
    EXPECT_EXIT(
        {
          mistake();
          std::exit(0);
        },
        ::testing::KilledBySignal(SIGABRT), message);
  }
}

TEST_F(CublasDeathTest, AHandleThatIsLeftWithItsContextAbortsAtExit) {
  EXPECT_EXIT(
      {
        CUcontext context = nullptr;
        cublasHandle_t handle = nullptr;
        Ok(cuInit(0));
        Ok(cuDevicePrimaryCtxRetain(&context, 0));
        Ok(cuCtxPushCurrent(context));
        cublasCreate(&handle);
        std::exit(0);
      },
      ::testing::KilledBySignal(SIGABRT), "left at exit: contexts: 1, .*handles: 1");
}

}  // namespace
}  // namespace ddprun::stand_in
