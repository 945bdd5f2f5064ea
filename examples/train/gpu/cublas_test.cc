#include "examples/train/gpu/cublas.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <string>

namespace ddprun::train {
namespace {

using testing::HasSubstr;

constexpr const char* kNames[] = {
#define DDPRUN_NAME(name, result, parameters) #name,
    DDPRUN_CUBLAS_FUNCTIONS(DDPRUN_NAME)
#undef DDPRUN_NAME
};

int major_of_fake = 13;

CublasLibrary Fake(int major) {
  major_of_fake = major;
  CublasLibrary library;
  library.cublasGetProperty = [](libraryPropertyType, int* value) {
    *value = major_of_fake;
    return CUBLAS_STATUS_SUCCESS;
  };
  library.cublasGetStatusName = [](cublasStatus_t status) {
    return status == CUBLAS_STATUS_ALLOC_FAILED ? "CUBLAS_STATUS_ALLOC_FAILED" : nullptr;
  };
  return library;
}

TEST(CublasTest, OpensOrSaysWhatIsMissing) {
  const StatusOr<const CublasLibrary*> library = OpenCublas();
#ifdef DDPRUN_HAVE_CUDA
  const std::string file = "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR);
  if (dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    ASSERT_TRUE(IsFailedPrecondition(library.status())) << library.status();
    EXPECT_THAT(library.status().message(),
                HasSubstr("there is no cuBLAS: " + file + ": cannot open shared object file"));
    EXPECT_THAT(library.status().message(), HasSubstr("; install cuBLAS of CUDA "));
    return;
  }
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(OpenCublas().value(), *library);
#else
  ASSERT_TRUE(IsFailedPrecondition(library.status())) << library.status();
  EXPECT_THAT(library.status().message(), HasSubstr("was built without a CUDA toolkit"));
#endif
}

TEST(CublasTest, EachFunctionIsLookedUpUnderItsName) {
  std::multiset<std::string> asked;
  const auto library = ResolveCublas(
      [&](const char* name) {
        asked.insert(name);
        return reinterpret_cast<void*>(&dlsym);
      },
      13);
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(asked, std::multiset<std::string>(std::begin(kNames), std::end(kNames)));
}

TEST(CublasTest, AMissingFunctionIsNamed) {
  for (const std::string missing : kNames) {
    const auto library = ResolveCublas(
        [&](const char* name) { return name == missing ? nullptr : reinterpret_cast<void*>(&dlsym); }, 12);
    EXPECT_EQ(library.status(),
              FailedPreconditionError("libcublas.so.12 has no function " + missing +
                                      ": install cuBLAS of CUDA 12, and set LD_LIBRARY_PATH to its folder "
                                      "if the loader does not find it"));
  }
}

TEST(CublasTest, OtherMajorVersionsAreRefused) {
  EXPECT_EQ(CheckCublasVersion(Fake(13), 13), OkStatus());
  EXPECT_EQ(CheckCublasVersion(Fake(12), 13),
            FailedPreconditionError("libcublas.so.13 is of cuBLAS 12; this program was built for cuBLAS 13: "
                                    "install cuBLAS of CUDA 13, and set LD_LIBRARY_PATH to its folder if the "
                                    "loader does not find it"));
}

TEST(CublasTest, ErrorsNameTheCallAndTheGpu) {
  const CublasLibrary library = Fake(13);
  EXPECT_EQ(CublasStatus(library, CUBLAS_STATUS_SUCCESS, "cublasSgemm", 0), OkStatus());
  EXPECT_EQ(CublasStatus(library, CUBLAS_STATUS_ALLOC_FAILED, "cublasCreate", 2),
            ResourceExhaustedError("cublasCreate on GPU 2: CUBLAS_STATUS_ALLOC_FAILED"));
  EXPECT_EQ(CublasStatus(library, static_cast<cublasStatus_t>(77), "cublasSgemm", 0),
            InternalError("cublasSgemm on GPU 0: error 77"));
}

}  // namespace
}  // namespace ddprun::train
