#include "worker_sdk/comm/nccl/library.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

#ifdef DDPRUN_HAVE_CUDA
#define DDPRUN_CHECK_TYPE(name, result, parameters)                             \
  static_assert(std::is_same_v<decltype(NcclLibrary::name), decltype(&::name)>, \
                #name " of nccl.h is different");
DDPRUN_NCCL_FUNCTIONS(DDPRUN_CHECK_TYPE)
#undef DDPRUN_CHECK_TYPE
#endif

constexpr char kLibrary[] = "libnccl.so.2";

int MajorOf(int version) { return version >= 10000 ? version / 10000 : version / 1000; }  // since 2.9: 20900

const char* NameOf(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case ncclSystemError:
      return "ncclSystemError";
    case ncclInternalError:
      return "ncclInternalError";
    case ncclInvalidArgument:
      return "ncclInvalidArgument";
    case ncclInvalidUsage:
      return "ncclInvalidUsage";
    case ncclRemoteError:
      return "ncclRemoteError";
    default:
      return nullptr;
  }
}

// Without line ends; empty for null.
std::string_view TextOf(const char* text) {
  std::string_view trimmed = text == nullptr ? "" : text;
  while (trimmed.ends_with('\n')) trimmed.remove_suffix(1);
  return trimmed;
}

StatusCode CodeOf(ncclResult_t result) {
  switch (result) {
    case ncclSystemError:
    case ncclRemoteError:
      return StatusCode::kUnavailable;
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return StatusCode::kInvalidArgument;
    default:
      return StatusCode::kInternal;
  }
}

StatusOr<NcclLibrary> Open() {
#ifdef DDPRUN_HAVE_CUDA
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailedPreconditionError(
        StrCat("there is no NCCL: ", dlerror(), "; install NCCL ", NCCL_MAJOR, ", or set LD_LIBRARY_PATH"));
  }
  DDPRUN_ASSIGN_OR_RETURN(NcclLibrary nccl,
                          ResolveNcclLibrary([library](const char* name) { return dlsym(library, name); }));
  DDPRUN_RETURN_IF_ERROR(CheckNcclVersion(nccl, NCCL_VERSION_CODE));
  return nccl;
#else
  return FailedPreconditionError(
      "this libddprun was built without a CUDA toolkit, so that it cannot use NCCL: install a toolkit and "
      "build again");
#endif
}

}  // namespace

std::string NcclVersionText(int version) {
  const int minor = version >= 10000 ? version % 10000 / 100 : version % 1000 / 100;
  return StrCat(MajorOf(version), ".", minor, ".", version % 100);
}

StatusOr<int> NcclVersionOf(const NcclLibrary& library) {
  int version = 0;
  DDPRUN_RETURN_IF_ERROR(NcclStatus(library, library.ncclGetVersion(&version), "ncclGetVersion", nullptr));
  return version;
}

StatusOr<const NcclLibrary*> OpenNcclLibrary() {
  static const StatusOr<NcclLibrary> library = Open();
  if (!library.ok()) return library.status();
  return &*library;
}

// An old library lacks functions, so that its version makes a better message than their names.
StatusOr<NcclLibrary> ResolveNcclLibrary(FunctionRef<void*(const char* name)> symbol) {
  NcclLibrary library;
  std::string missing;
#define DDPRUN_RESOLVE(name, result, parameters)                          \
  library.name = reinterpret_cast<decltype(library.name)>(symbol(#name)); \
  if (library.name == nullptr && missing.empty()) missing = #name;
  DDPRUN_NCCL_FUNCTIONS(DDPRUN_RESOLVE)
#undef DDPRUN_RESOLVE
  if (missing.empty()) return library;
  int version = 0;
  const bool known = library.ncclGetVersion != nullptr && library.ncclGetVersion(&version) == ncclSuccess;
  return FailedPreconditionError(StrCat(kLibrary, known ? StrCat(" of NCCL ", NcclVersionText(version)) : "",
                                        " has no function ", missing, ": install NCCL ",
                                        NcclVersionText(kMinNcclVersion), " or newer"));
}

Status CheckNcclVersion(const NcclLibrary& library, int built_version) {
  DDPRUN_ASSIGN_OR_RETURN(const int version, NcclVersionOf(library));
  if (MajorOf(version) != MajorOf(built_version)) {
    return FailedPreconditionError(
        StrCat(kLibrary, " is of NCCL ", NcclVersionText(version), "; this library was built for NCCL ",
               NcclVersionText(built_version), ": install NCCL ", MajorOf(built_version)));
  }
  if (version >= kMinNcclVersion) return OkStatus();
  return FailedPreconditionError(StrCat(kLibrary, " is of NCCL ", NcclVersionText(version),
                                        "; this library needs ", NcclVersionText(kMinNcclVersion),
                                        " or newer"));
}

Status NcclStatus(const NcclLibrary& library, ncclResult_t result, std::string_view call, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return OkStatus();
  const char* const name = NameOf(result);
  std::string message =
      StrCat(call, ": ", name != nullptr ? name : StrCat("error ", static_cast<int>(result)));
  const std::string_view text = TextOf(library.ncclGetErrorString(result));
  const std::string_view last = TextOf(library.ncclGetLastError(comm));
  if (!text.empty()) StrAppend(&message, ": ", text);
  if (!last.empty() && last != text) StrAppend(&message, ": ", last);
  return {CodeOf(result), message};
}

Status StartNcclCommunicator([[maybe_unused]] const NcclLibrary& library,
                             [[maybe_unused]] const ncclUniqueId& id, [[maybe_unused]] int rank,
                             [[maybe_unused]] int size, ncclComm_t* comm) {
  *comm = nullptr;
#ifdef DDPRUN_HAVE_CUDA
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return NcclStatus(library, library.ncclCommInitRankConfig(comm, size, id, rank, &config),
                    "ncclCommInitRankConfig", nullptr);
#else
  return UnimplementedError("this libddprun was built without a CUDA toolkit");
#endif
}

StatusOr<ncclDataType_t> NcclTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kInt32:
      return ncclInt32;
    case DType::kInt64:
      return ncclInt64;
    case DType::kUInt8:
      return ncclUint8;
  }
  return InvalidArgumentError(StrCat("dtype ", static_cast<int>(dtype), " is unknown"));
}

StatusOr<ncclRedOp_t> NcclOperatorOf(ReduceOp op, DType dtype) {
  const bool is_integer = dtype == DType::kInt32 || dtype == DType::kInt64 || dtype == DType::kUInt8;
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kMean:
      if (is_integer)
        return InvalidArgumentError(StrCat("the mean of ", NameOf(dtype), " elements is not defined"));
      return ncclAvg;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProduct:
      return ncclProd;
  }
  return InvalidArgumentError(StrCat("operator ", static_cast<int>(op), " is unknown"));
}

}  // namespace ddprun
