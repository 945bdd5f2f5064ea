#include "worker_sdk/device/cuda/driver.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

#ifdef DDPRUN_HAVE_CUDA
#define DDPRUN_CHECK_TYPE(name, result, parameters)                            \
  static_assert(std::is_same_v<decltype(CudaDriver::name), decltype(&::name)>, \
                #name " of cuda.h is different");
DDPRUN_CUDA_FUNCTIONS(DDPRUN_CHECK_TYPE)
#undef DDPRUN_CHECK_TYPE
#endif

constexpr char kLibrary[] = "libcuda.so.1";
// In each message of a sticky error; IsDeviceLost looks for it.
constexpr char kLost[] = "is lost until the process exits";

std::string VersionText(int version) {  // 12040 is "12.4"
  return StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string TextOf(const CudaDriver& driver, CUresult error) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.cuGetErrorName(error, &name) != CUDA_SUCCESS || name == nullptr)
    return StrCat("error ", static_cast<int>(error));
  if (driver.cuGetErrorString(error, &text) != CUDA_SUCCESS || text == nullptr) return name;
  return StrCat(name, ": ", text);
}

}  // namespace

bool IsSticky(CUresult error) {
  switch (error) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      // Some releases of the driver have further ones; those of cuda.h that are missing in older toolkits are listed by number:
      // CUDA_ERROR_CONTAINED, CUDA_ERROR_TENSOR_MEMORY_LEAK, CUDA_ERROR_EXTERNAL_DEVICE.
      return static_cast<int>(error) == 226 || static_cast<int>(error) == 721 ||
             static_cast<int>(error) == 911;
  }
}

Status CudaStatus(const CudaDriver& driver, CUresult error, std::string_view call, int device) {
  if (error == CUDA_SUCCESS) return OkStatus();
  std::string message(call);
  if (device >= 0) StrAppend(&message, " on GPU ", device);
  StrAppend(&message, ": ", TextOf(driver, error));
  if (IsSticky(error)) {
    if (device >= 0) StrAppend(&message, "; the context of GPU ", device, " ", kLost);
    return DataLossError(message);
  }
  return error == CUDA_ERROR_OUT_OF_MEMORY ? ResourceExhaustedError(message) : InternalError(message);
}

bool IsDeviceLost(const Status& status) {
  return IsDataLoss(status) && status.message().find(kLost) != std::string::npos;
}

StatusOr<CudaDriver> ResolveCudaDriver(FunctionRef<void*(const char* name)> symbol) {
  CudaDriver driver;
  std::string missing;
#define DDPRUN_RESOLVE(name, result, parameters)                        \
  driver.name = reinterpret_cast<decltype(driver.name)>(symbol(#name)); \
  if (driver.name == nullptr && missing.empty()) missing = #name;
  DDPRUN_CUDA_FUNCTIONS(DDPRUN_RESOLVE)
#undef DDPRUN_RESOLVE
  if (missing.empty()) return driver;
  return FailedPreconditionError(StrCat("the NVIDIA driver's ", kLibrary, " has no function ", missing,
                                        ": install a driver of CUDA ", VersionText(kMinCudaVersion),
                                        " or newer"));
}

Status StartCudaDriver(const CudaDriver& driver) {
  int version = 0;
  CUresult error = driver.cuDriverGetVersion(&version);
  const char* call = "cuDriverGetVersion";
  if (error == CUDA_SUCCESS) {
    if (version < kMinCudaVersion) {
      return FailedPreconditionError(StrCat("the NVIDIA driver is of CUDA ", VersionText(version),
                                            "; this library needs ", VersionText(kMinCudaVersion),
                                            " or newer"));
    }
    call = "cuInit";
    error = driver.cuInit(0);
  }
  if (error == CUDA_SUCCESS) return OkStatus();
  std::string message = CudaStatus(driver, error, call, /*device=*/-1).message();
  switch (error) {
    case CUDA_ERROR_NO_DEVICE:
      StrAppend(
          &message,
          ": this process sees no GPU; check CUDA_VISIBLE_DEVICES, the container's devices and nvidia-smi");
      break;
    case CUDA_ERROR_STUB_LIBRARY:
      StrAppend(&message, ": ", kLibrary,
                " is the CUDA toolkit's stub; remove the toolkit's stubs from LD_LIBRARY_PATH");
      break;
    case CUDA_ERROR_SYSTEM_NOT_READY:
      StrAppend(&message, ": start the fabric manager (nvidia-fabricmanager)");
      break;
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      StrAppend(&message, ": the kernel's driver and ", kLibrary,
                " are of different versions; restart the machine");
      break;
    default:
      StrAppend(&message, ": check nvidia-smi and the kernel's log (dmesg)");
  }
  return FailedPreconditionError(message);
}

namespace {

StatusOr<CudaDriver> Open() {
#ifdef DDPRUN_HAVE_CUDA
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailedPreconditionError(StrCat("there is no NVIDIA driver: ", dlerror(),
                                          "; install it, or give the container access to the GPUs"));
  }
  DDPRUN_ASSIGN_OR_RETURN(CudaDriver driver,
                          ResolveCudaDriver([library](const char* name) { return dlsym(library, name); }));
  DDPRUN_RETURN_IF_ERROR(StartCudaDriver(driver));
  return driver;
#else
  return FailedPreconditionError(
      "this libddprun was built without a CUDA toolkit, so that it cannot use GPUs: install a toolkit and "
      "build again");
#endif
}

}  // namespace

StatusOr<const CudaDriver*> OpenCudaDriver() {
  static const StatusOr<CudaDriver> driver = Open();
  if (!driver.ok()) return driver.status();
  return &*driver;
}

}  // namespace ddprun
