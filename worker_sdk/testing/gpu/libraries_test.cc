// The shared libraries of the stand-in are found by their names, and have the functions that the GPU backend uses. Without a
// toolkit they have none.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#ifdef DDPRUN_HAVE_CUDA
#include <cuda.h>
#include <nccl.h>
#endif

#include "worker_sdk/testing/gpu/control.h"

namespace ddprun::stand_in {
namespace {

constexpr const char* kDriverFunctions[] = {
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetUuid_v2",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxGetCurrent",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamWaitEvent",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamGetCtx",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuPointerGetAttribute",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuGetErrorName",
    "cuGetErrorString",
};
constexpr const char* kNcclFunctions[] = {
    "ncclGetVersion",   "ncclGetUniqueId",   "ncclCommInitRankConfig", "ncclCommFinalize",
    "ncclCommDestroy",  "ncclCommAbort",     "ncclCommGetAsyncError",  "ncclGetErrorString",
    "ncclGetLastError", "ncclGroupStart",    "ncclGroupEnd",           "ncclAllReduce",
    "ncclReduce",       "ncclReduceScatter", "ncclAllGather",          "ncclBroadcast",
    "ncclSend",         "ncclRecv",          "ncclCommRegister",       "ncclCommDeregister",
};

void* Open(const char* name) {
  void* const library = dlopen(name, RTLD_NOW);
  EXPECT_NE(library, nullptr) << dlerror();
  return library;
}

#ifdef DDPRUN_HAVE_CUDA
constexpr bool kComplete = true;
#else
constexpr bool kComplete = false;
#endif

TEST(LibrariesTest, HaveTheFunctionsOfTheBackend) {
  void* const cuda = Open("libcuda.so.1");
  void* const nccl = Open("libnccl.so.2");
  for (const char* name : kDriverFunctions) EXPECT_EQ(dlsym(cuda, name) != nullptr, kComplete) << name;
  for (const char* name : kNcclFunctions) EXPECT_EQ(dlsym(nccl, name) != nullptr, kComplete) << name;
  for (const char* name : {"StandInReport", "StandInHold", "StandInRelease", "StandInLoseDevice"})
    EXPECT_EQ(dlsym(cuda, name) != nullptr, kComplete) << name;
  EXPECT_EQ(dlsym(nccl, "StandInFailCommunicators") != nullptr, kComplete);
}

#ifdef DDPRUN_HAVE_CUDA

class LibrariesDeathTest : public ::testing::Test {
 protected:
  LibrariesDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

template <typename Function>
Function* Get(const char* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen(library, RTLD_NOW), name));
}
#define FROM(library, name) Get<decltype(name)>(library, #name)

// Creates a communicator of one rank, and leaves it.
[[noreturn]] void LeaveACommunicator() {
  CUcontext context = nullptr;
  ncclComm_t comm = nullptr;
  ncclUniqueId id;
  if (FROM("libcuda.so.1", cuInit)(0) != CUDA_SUCCESS) std::exit(2);
  if (FROM("libcuda.so.1", cuDevicePrimaryCtxRetain)(&context, 0) != CUDA_SUCCESS) std::exit(3);
  if (Get<decltype(cuCtxPushCurrent)>("libcuda.so.1", "cuCtxPushCurrent_v2")(context) != CUDA_SUCCESS)
    std::exit(4);
  if (FROM("libnccl.so.2", ncclGetUniqueId)(&id) != ncclSuccess) std::exit(5);
  if (FROM("libnccl.so.2", ncclCommInitRankConfig)(&comm, 1, id, 0, nullptr) != ncclSuccess) std::exit(6);
  StandInCounts counts;
  FROM("libcuda.so.1", StandInReport)(&counts);
  std::exit(counts.communicators == 1 ? 0 : 7);
}

TEST_F(LibrariesDeathTest, NcclFindsTheDriverOfTheProcess) {
  EXPECT_EXIT(LeaveACommunicator(), ::testing::KilledBySignal(SIGABRT),
              "left at exit: contexts: 1, .*communicators: 1");
}

TEST_F(LibrariesDeathTest, VersionOfNccl) {
  const auto version = [] {
    int number = 0;
    FROM("libnccl.so.2", ncclGetVersion)(&number);
    return number;
  };
  // First, because a process reads the environment once.
  EXPECT_EXIT(
      {
        setenv("DDPRUN_STAND_IN_NCCL_VERSION", "30100", 1);
        std::exit(version() == 30100 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(version(), NCCL_VERSION_CODE);
}

TEST_F(LibrariesDeathTest, OneVariantCannotCreateCommunicators) {
  const auto without = [](const char* name) {
    return dlsym(dlopen("worker_sdk/testing/gpu/nccl/without_init/libnccl.so.2", RTLD_NOW), name);
  };
  // In a process of its own, because the two libraries have one soname.
  EXPECT_EXIT(
      std::exit(without("ncclCommInitRankConfig") == nullptr && without("ncclAllReduce") != nullptr ? 0 : 1),
      ::testing::ExitedWithCode(0), "");
}

#endif

}  // namespace
}  // namespace ddprun::stand_in
