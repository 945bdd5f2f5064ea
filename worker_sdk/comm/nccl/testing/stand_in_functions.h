// The functions of gpu/control.h in the libraries that the process has opened: it is not linked with them.
#pragma once

#include <dlfcn.h>

#include "base/check.h"
#include "worker_sdk/testing/gpu/control.h"

namespace ddprun {

template <typename Function>
Function* FindInStandIn(const char* library, const char* name) {
  void* const found = dlsym(dlopen(library, RTLD_NOW), name);
  DDPRUN_CHECK(found != nullptr, library << " has no " << name << ": it is not the stand-in");
  return reinterpret_cast<Function*>(found);
}

// What the stand-in counts in this process.
inline StandInCounts CountsOfStandIn() {
  static auto* const report = FindInStandIn<decltype(StandInReport)>("libcuda.so.1", "StandInReport");
  StandInCounts counts{};
  report(&counts);
  return counts;
}

}  // namespace ddprun
