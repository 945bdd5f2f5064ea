#include "worker_sdk/device/cuda/driver.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "worker_sdk/device/cuda/testing/fake_cuda.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kNames[] = {
#define DDPRUN_NAME(name, result, parameters) #name,
    DDPRUN_CUDA_FUNCTIONS(DDPRUN_NAME)
#undef DDPRUN_NAME
};

void* const kAddress = reinterpret_cast<void*>(&dlsym);

TEST(CudaDriverTest, WithoutADriverOrAToolkitTheErrorSaysWhatIsMissing) {
  const StatusOr<const CudaDriver*> driver = OpenCudaDriver();
#ifdef DDPRUN_HAVE_CUDA
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (library != nullptr) GTEST_SKIP() << "this machine has a driver";
  ASSERT_TRUE(IsFailedPrecondition(driver.status())) << driver.status();
  EXPECT_THAT(driver.status().message(),
              HasSubstr("there is no NVIDIA driver: libcuda.so.1: cannot open shared object file"));
#else
  ASSERT_TRUE(IsFailedPrecondition(driver.status())) << driver.status();
  EXPECT_THAT(driver.status().message(), HasSubstr("was built without a CUDA toolkit"));
#endif
  EXPECT_EQ(OpenCudaDriver().status(), driver.status());
}

TEST(CudaDriverTest, EachFunctionIsLookedUpUnderItsNameAndVersion) {
  std::multiset<std::string> asked;
  const auto driver = ResolveCudaDriver([&](const char* name) {
    asked.insert(name);
    return kAddress;
  });
  ASSERT_TRUE(driver.ok()) << driver.status();
  EXPECT_EQ(asked, std::multiset<std::string>(std::begin(kNames), std::end(kNames)));
  EXPECT_EQ(reinterpret_cast<void*>(driver->cuMemAlloc_v2), kAddress);
  EXPECT_EQ(asked.count("cuMemAlloc_v2"), 1);
  EXPECT_EQ(asked.count("cuEventDestroy_v2"), 1);
}

TEST(CudaDriverTest, AMissingFunctionIsNamed) {
  for (const std::string missing : kNames) {
    const auto driver =
        ResolveCudaDriver([&](const char* name) { return name == missing ? nullptr : kAddress; });
    ASSERT_TRUE(IsFailedPrecondition(driver.status())) << missing;
    EXPECT_THAT(driver.status().message(), AllOf(HasSubstr("libcuda.so.1 has no function " + missing + ":"),
                                                 HasSubstr("install a driver of CUDA 12.0 or newer")));
  }
}

TEST(CudaDriverTest, AnOldDriverIsRefusedBeforeItIsInitialized) {
  FakeCuda cuda;
  cuda.version = 11040;
  const Status status = StartCudaDriver(cuda.driver);
  EXPECT_EQ(status,
            FailedPreconditionError("the NVIDIA driver is of CUDA 11.4; this library needs 12.0 or newer"));
  EXPECT_EQ(cuda.num_calls("cuInit"), 0);
}

TEST(CudaDriverTest, AGoodDriverIsInitialized) {
  FakeCuda cuda;
  cuda.version = kMinCudaVersion;
  EXPECT_EQ(StartCudaDriver(cuda.driver), OkStatus());
  EXPECT_EQ(cuda.num_calls("cuInit"), 1);
}

TEST(CudaDriverTest, EachReasonForWhichADriverDoesNotStartHasARemedy) {
  const struct {
    CUresult error;
    const char* remedy;
  } kCases[] = {
      {CUDA_ERROR_NO_DEVICE, "this process sees no GPU; check CUDA_VISIBLE_DEVICES"},
      {CUDA_ERROR_STUB_LIBRARY, "remove the toolkit's stubs from LD_LIBRARY_PATH"},
      {CUDA_ERROR_SYSTEM_NOT_READY, "start the fabric manager"},
      {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "restart the machine"},
      {CUDA_ERROR_UNKNOWN, "check nvidia-smi and the kernel's log"},
  };
  for (const auto& [error, remedy] : kCases) {
    FakeCuda cuda;
    cuda.Fail("cuInit", error);
    const Status status = StartCudaDriver(cuda.driver);
    ASSERT_TRUE(IsFailedPrecondition(status)) << status;
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("cuInit: CUDA_ERROR_OTHER: another error"), HasSubstr(remedy)));
  }
}

TEST(CudaStatusTest, NamesTheCallTheErrorAndTheDevice) {
  FakeCuda cuda;
  EXPECT_EQ(CudaStatus(cuda.driver, CUDA_SUCCESS, "cuEventQuery", 1), OkStatus());
  EXPECT_EQ(CudaStatus(cuda.driver, CUDA_ERROR_INVALID_VALUE, "cuEventRecord", 1),
            InternalError("cuEventRecord on GPU 1: CUDA_ERROR_OTHER: another error"));
  EXPECT_EQ(CudaStatus(cuda.driver, CUDA_ERROR_INVALID_VALUE, "cuDeviceGetCount", -1),
            InternalError("cuDeviceGetCount: CUDA_ERROR_OTHER: another error"));
  EXPECT_EQ(CudaStatus(cuda.driver, CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc", 0).code(),
            StatusCode::kResourceExhausted);
  // The driver knows no name for errors of newer versions.
  EXPECT_EQ(CudaStatus(cuda.driver, CUDA_ERROR_NOT_FOUND, "cuModuleGetFunction", 0),
            InternalError("cuModuleGetFunction on GPU 0: error 500"));
}

TEST(CudaStatusTest, StickyErrorsAreRecognized) {
  FakeCuda cuda;
  const Status lost = CudaStatus(cuda.driver, CUDA_ERROR_ILLEGAL_ADDRESS, "cuEventQuery", 3);
  EXPECT_EQ(lost,
            DataLossError("cuEventQuery on GPU 3: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was "
                          "encountered; the context of GPU 3 is lost until the process exits"));
  EXPECT_TRUE(IsDeviceLost(lost));
  EXPECT_TRUE(IsDeviceLost(WithContext(lost, "all-reduce")));
  for (const CUresult error : {CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_UNKNOWN,
                               static_cast<CUresult>(226), static_cast<CUresult>(721)}) {
    EXPECT_TRUE(IsSticky(error)) << error;
    EXPECT_TRUE(IsDeviceLost(CudaStatus(cuda.driver, error, "cuEventQuery", 0))) << error;
  }
  for (const CUresult error : {CUDA_SUCCESS, CUDA_ERROR_NOT_READY, CUDA_ERROR_OUT_OF_MEMORY,
                               CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_DEVICE}) {
    EXPECT_FALSE(IsSticky(error)) << error;
    EXPECT_FALSE(IsDeviceLost(CudaStatus(cuda.driver, error, "cuEventQuery", 0))) << error;
  }
  EXPECT_FALSE(IsDeviceLost(DataLossError("a snapshot is damaged")));
  EXPECT_FALSE(IsDeviceLost(OkStatus()));
}

#ifdef DDPRUN_HAVE_CUDA
// The toolkit has a library with all functions of the driver, each of which returns CUDA_ERROR_STUB_LIBRARY.
TEST(CudaDriverTest, TheToolkitsStubHasAllFunctionsAndIsRefused) {
  const std::filesystem::path root = std::filesystem::path(NVCC).parent_path().parent_path();
  void* library = nullptr;
  for (const char* folder : {"lib64/stubs", "lib/stubs"}) {
    if (library == nullptr) library = dlopen((root / folder / "libcuda.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) GTEST_SKIP() << "this toolkit has no stub of the driver";
  const auto driver = ResolveCudaDriver([&](const char* name) { return dlsym(library, name); });
  ASSERT_TRUE(driver.ok()) << driver.status();
  const Status status = StartCudaDriver(*driver);
  ASSERT_TRUE(IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("remove the toolkit's stubs from LD_LIBRARY_PATH"));
}
#endif

}  // namespace
}  // namespace ddprun
