// The headers that @cuda//:headers provides are those of the toolkit that the build uses.
#include <gtest/gtest.h>

#ifdef DDPRUN_HAVE_CUDA
#include <cublas_v2.h>
#include <cuda.h>
#include <nccl.h>
#else
#define CUDA_VERSION 0
#endif

namespace {

// TOOLKIT_VERSION is CUDA_VERSION of defs.bzl: 0 without a toolkit.
TEST(CudaHeadersTest, AreThoseOfTheToolkit) { EXPECT_EQ(CUDA_VERSION, TOOLKIT_VERSION); }

#ifdef DDPRUN_HAVE_CUDA
TEST(CudaHeadersTest, DeclareTheLibrariesOfTheBackend) {
  EXPECT_EQ(CUDA_SUCCESS, 0);
  EXPECT_EQ(CUBLAS_STATUS_SUCCESS, 0);
  EXPECT_EQ(ncclSuccess, 0);
  EXPECT_GE(NCCL_MAJOR, 2);
}
#endif

}  // namespace
