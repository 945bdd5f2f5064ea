// The driver that the program has loaded, for libnccl.so.2 and cuBLAS.
#include <dlfcn.h>

#include "worker_sdk/testing/gpu/driver.h"
#include "worker_sdk/testing/gpu/misuse.h"

namespace ddprun::stand_in {
namespace {

Driver* Find() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* const function = library == nullptr ? nullptr : dlsym(library, "StandInDriver");
  if (function == nullptr) Misuse("NCCL or cuBLAS is the stand-in, but libcuda.so.1 is not");
  return reinterpret_cast<Driver* (*)()>(function)();
}

}  // namespace

Driver& TheDriver() {
  static Driver* const driver = Find();
  return *driver;
}

}  // namespace ddprun::stand_in
