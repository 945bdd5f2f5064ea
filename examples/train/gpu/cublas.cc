#include "examples/train/gpu/cublas.h"

#include <dlfcn.h>

#include <type_traits>

#include "worker_sdk/core/strings.h"

namespace ddprun::train {
namespace {

#ifdef DDPRUN_HAVE_CUDA
#define DDPRUN_CHECK_TYPE(name, result, parameters)                               \
  static_assert(std::is_same_v<decltype(CublasLibrary::name), decltype(&::name)>, \
                #name " of cublas_v2.h is different");
DDPRUN_CUBLAS_FUNCTIONS(DDPRUN_CHECK_TYPE)
#undef DDPRUN_CHECK_TYPE
#endif

std::string FileName(int major) { return StrCat("libcublas.so.", major); }

std::string Remedy(int major) {
  return StrCat("install cuBLAS of CUDA ", major,
                ", and set LD_LIBRARY_PATH to its folder if the loader does "
                "not find it");
}

StatusOr<CublasLibrary> Open() {
#ifdef DDPRUN_HAVE_CUDA
  constexpr int kMajor = CUBLAS_VER_MAJOR;
  void* const library = dlopen(FileName(kMajor).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return FailedPreconditionError(StrCat("there is no cuBLAS: ", dlerror(), "; ", Remedy(kMajor)));
  DDPRUN_ASSIGN_OR_RETURN(
      CublasLibrary cublas,
      ResolveCublas([library](const char* name) { return dlsym(library, name); }, kMajor));
  DDPRUN_RETURN_IF_ERROR(CheckCublasVersion(cublas, kMajor));
  return cublas;
#else
  return FailedPreconditionError(
      "this program was built without a CUDA toolkit, so that it cannot use cuBLAS: install a toolkit and "
      "build again");
#endif
}

}  // namespace

StatusOr<const CublasLibrary*> OpenCublas() {
  static const StatusOr<CublasLibrary> library = Open();
  if (!library.ok()) return library.status();
  return &*library;
}

StatusOr<CublasLibrary> ResolveCublas(FunctionRef<void*(const char* name)> symbol, int major) {
  CublasLibrary library;
  std::string missing;
#define DDPRUN_RESOLVE(name, result, parameters)                          \
  library.name = reinterpret_cast<decltype(library.name)>(symbol(#name)); \
  if (library.name == nullptr && missing.empty()) missing = #name;
  DDPRUN_CUBLAS_FUNCTIONS(DDPRUN_RESOLVE)
#undef DDPRUN_RESOLVE
  if (missing.empty()) return library;
  return FailedPreconditionError(StrCat(FileName(major), " has no function ", missing, ": ", Remedy(major)));
}

Status CheckCublasVersion(const CublasLibrary& library, int major) {
  int found = 0;
  DDPRUN_RETURN_IF_ERROR(CublasStatus(library, library.cublasGetProperty(MAJOR_VERSION, &found),
                                      "cublasGetProperty", /*device=*/-1));
  if (found == major) return OkStatus();
  return FailedPreconditionError(StrCat(FileName(major), " is of cuBLAS ", found,
                                        "; this program was built for cuBLAS ", major, ": ", Remedy(major)));
}

Status CublasStatus(const CublasLibrary& library, cublasStatus_t status, std::string_view call, int device) {
  if (status == CUBLAS_STATUS_SUCCESS) return OkStatus();
  std::string message(call);
  if (device >= 0) StrAppend(&message, " on GPU ", device);
  const char* const name = library.cublasGetStatusName(status);
  StrAppend(&message, ": ", name != nullptr ? name : StrCat("error ", static_cast<int>(status)));
  return status == CUBLAS_STATUS_ALLOC_FAILED ? ResourceExhaustedError(message) : InternalError(message);
}

}  // namespace ddprun::train
