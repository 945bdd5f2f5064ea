#include "worker_sdk/comm/nccl/library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kNames[] = {
#define DDPRUN_NAME(name, result, parameters) #name,
    DDPRUN_NCCL_FUNCTIONS(DDPRUN_NAME)
#undef DDPRUN_NAME
};

constexpr int kBuilt = 22809;

int version_of_fake = kBuilt;
const char* last_error_of_fake = "";

ncclResult_t GetVersion(int* version) {
  *version = version_of_fake;
  return ncclSuccess;
}

NcclLibrary Fake(int version) {
  version_of_fake = version;
  last_error_of_fake = "";
  NcclLibrary library;
  library.ncclGetVersion = GetVersion;
  library.ncclGetErrorString = [](ncclResult_t) { return "text of the error"; };
  library.ncclGetLastError = [](ncclComm_t) { return last_error_of_fake; };
  return library;
}

void* AddressOf(const std::string& name) {
  return name == "ncclGetVersion" ? reinterpret_cast<void*>(GetVersion) : reinterpret_cast<void*>(&dlsym);
}

TEST(NcclLibraryTest, OpensOrSaysWhatIsMissing) {
  const StatusOr<const NcclLibrary*> library = OpenNcclLibrary();
#ifdef DDPRUN_HAVE_CUDA
  if (dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    ASSERT_TRUE(IsFailedPrecondition(library.status())) << library.status();
    EXPECT_THAT(library.status().message(),
                HasSubstr("there is no NCCL: libnccl.so.2: cannot open shared object file"));
    return;
  }
  ASSERT_TRUE(library.ok()) << library.status();
  int version = 0;
  EXPECT_EQ((*library)->ncclGetVersion(&version), ncclSuccess);
  EXPECT_GE(version, kMinNcclVersion);
  EXPECT_EQ(OpenNcclLibrary().value(), *library);
  EXPECT_THAT(NcclStatus(**library, ncclRemoteError, "ncclSend", nullptr).message(),
              HasSubstr("ncclSend: ncclRemoteError: remote process exited"));
#else
  ASSERT_TRUE(IsFailedPrecondition(library.status())) << library.status();
  EXPECT_THAT(library.status().message(), HasSubstr("was built without a CUDA toolkit"));
#endif
}

TEST(NcclLibraryTest, EachFunctionIsLookedUpUnderItsName) {
  std::multiset<std::string> asked;
  const auto library = ResolveNcclLibrary([&](const char* name) {
    asked.insert(name);
    return AddressOf(name);
  });
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(asked, std::multiset<std::string>(std::begin(kNames), std::end(kNames)));
  EXPECT_EQ(library->ncclGetVersion, GetVersion);
}

TEST(NcclLibraryTest, AMissingFunctionIsNamedWithTheVersion) {
  Fake(21805);
  for (const std::string missing : kNames) {
    const auto library =
        ResolveNcclLibrary([&](const char* name) { return name == missing ? nullptr : AddressOf(name); });
    ASSERT_TRUE(IsFailedPrecondition(library.status())) << missing;
    const std::string found = missing == "ncclGetVersion" ? "libnccl.so.2" : "libnccl.so.2 of NCCL 2.18.5";
    EXPECT_EQ(library.status().message(),
              found + " has no function " + missing + ": install NCCL 2.19.0 or newer");
  }
}

TEST(NcclLibraryTest, OtherMajorVersionsAndOldOnesAreRefused) {
  EXPECT_EQ(CheckNcclVersion(Fake(kBuilt), kBuilt), OkStatus());
  EXPECT_EQ(CheckNcclVersion(Fake(23203), kBuilt), OkStatus());
  EXPECT_EQ(CheckNcclVersion(Fake(kMinNcclVersion), kBuilt), OkStatus());
  EXPECT_EQ(CheckNcclVersion(Fake(30001), kBuilt),
            FailedPreconditionError(
                "libnccl.so.2 is of NCCL 3.0.1; this library was built for NCCL 2.28.9: install NCCL 2"));
  EXPECT_EQ(CheckNcclVersion(Fake(21805), kBuilt),
            FailedPreconditionError("libnccl.so.2 is of NCCL 2.18.5; this library needs 2.19.0 or newer"));
  EXPECT_EQ(CheckNcclVersion(Fake(2804), kBuilt),  // the numbers had fewer digits
            FailedPreconditionError("libnccl.so.2 is of NCCL 2.8.4; this library needs 2.19.0 or newer"));
}

TEST(NcclStatusTest, NamesTheCallTheErrorAndTheLastError) {
  const NcclLibrary nccl = Fake(kBuilt);
  EXPECT_EQ(NcclStatus(nccl, ncclSuccess, "ncclSend", nullptr), OkStatus());
  EXPECT_EQ(NcclStatus(nccl, ncclInProgress, "ncclSend", nullptr), OkStatus());
  EXPECT_EQ(NcclStatus(nccl, ncclInternalError, "ncclSend", nullptr),
            InternalError("ncclSend: ncclInternalError: text of the error"));
  last_error_of_fake = "socketProgress: Connection closed by remote peer\n";
  EXPECT_EQ(
      NcclStatus(nccl, ncclRemoteError, "ncclSend", nullptr),
      UnavailableError("ncclSend: ncclRemoteError: text of the error: socketProgress: Connection closed by "
                       "remote peer"));
  last_error_of_fake = "text of the error";  // not twice
  EXPECT_EQ(NcclStatus(nccl, ncclInternalError, "ncclSend", nullptr),
            InternalError("ncclSend: ncclInternalError: text of the error"));
  EXPECT_TRUE(IsUnavailable(NcclStatus(nccl, ncclSystemError, "ncclSend", nullptr)));
  EXPECT_TRUE(IsInvalidArgument(NcclStatus(nccl, ncclInvalidArgument, "ncclSend", nullptr)));
  EXPECT_TRUE(IsInvalidArgument(NcclStatus(nccl, ncclInvalidUsage, "ncclSend", nullptr)));
  EXPECT_TRUE(IsInternal(NcclStatus(nccl, ncclUnhandledCudaError, "ncclSend", nullptr)));
  EXPECT_THAT(NcclStatus(nccl, static_cast<ncclResult_t>(77), "ncclSend", nullptr).message(),
              HasSubstr("ncclSend: error 77: "));
}

#ifdef DDPRUN_HAVE_CUDA
TEST(NcclLibraryTest, CommunicatorsDoNotBlock) {
  static int blocking = 1;
  NcclLibrary nccl = Fake(kBuilt);
  nccl.ncclCommInitRankConfig = [](ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                   ncclConfig_t* config) {
    EXPECT_EQ(id.internal[5], 7);
    EXPECT_EQ(size, 4);
    EXPECT_EQ(rank, 3);
    blocking = config->blocking;
    *comm = reinterpret_cast<ncclComm_t>(0x1000);
    return ncclInProgress;
  };
  ncclUniqueId id = {};
  id.internal[5] = 7;
  ncclComm_t comm = nullptr;
  EXPECT_EQ(StartNcclCommunicator(nccl, id, /*rank=*/3, /*size=*/4, &comm), OkStatus());
  EXPECT_EQ(blocking, 0);
  EXPECT_EQ(comm, reinterpret_cast<ncclComm_t>(0x1000));
}
#endif

TEST(NcclTypesTest, AllTypesOfElements) {
  const std::pair<DType, ncclDataType_t> kTypes[] = {
      {DType::kFloat32, ncclFloat32},   {DType::kFloat64, ncclFloat64}, {DType::kFloat16, ncclFloat16},
      {DType::kBFloat16, ncclBfloat16}, {DType::kInt32, ncclInt32},     {DType::kInt64, ncclInt64},
      {DType::kUInt8, ncclUint8},
  };
  for (const auto& [dtype, type] : kTypes) EXPECT_EQ(NcclTypeOf(dtype).value(), type) << NameOf(dtype);
  EXPECT_TRUE(IsInvalidArgument(NcclTypeOf(static_cast<DType>(7)).status()));
}

TEST(NcclTypesTest, AllOperatorsExceptTheMeanOfIntegers) {
  for (int i = 0; i < 7; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(NcclOperatorOf(ReduceOp::kSum, dtype).value(), ncclSum);
    EXPECT_EQ(NcclOperatorOf(ReduceOp::kMin, dtype).value(), ncclMin);
    EXPECT_EQ(NcclOperatorOf(ReduceOp::kMax, dtype).value(), ncclMax);
    EXPECT_EQ(NcclOperatorOf(ReduceOp::kProduct, dtype).value(), ncclProd);
  }
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16})
    EXPECT_EQ(NcclOperatorOf(ReduceOp::kMean, dtype).value(), ncclAvg);
  for (const DType dtype : {DType::kInt32, DType::kInt64, DType::kUInt8}) {
    EXPECT_EQ(NcclOperatorOf(ReduceOp::kMean, dtype).status(),
              InvalidArgumentError(std::string("the mean of ") + NameOf(dtype) + " elements is not defined"));
  }
  EXPECT_TRUE(IsInvalidArgument(NcclOperatorOf(static_cast<ReduceOp>(5), DType::kFloat32).status()));
}

}  // namespace
}  // namespace ddprun
