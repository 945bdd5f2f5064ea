// Loads a fake of NVIDIA's driver library into a test.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace ddprun {

// The path of a folder of the fakes: "testing", "testing/old" or "testing/oldest"; see fake_nvml.cc.
inline std::string NvmlFolder(const std::string& folder) {
  return absl::StrCat(std::getenv("TEST_SRCDIR"), "/ddprun/launcher/config/", folder);
}

// When the code under test later opens a library of the same name, dlopen returns the fake, because it is
// already loaded.
class LoadedNvml {
 public:
  explicit LoadedNvml(const std::string& folder) : handle_(Load(NvmlFolder(folder) + "/libnvidia-ml.so.1")) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~LoadedNvml() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  LoadedNvml(const LoadedNvml&) = delete;
  LoadedNvml& operator=(const LoadedNvml&) = delete;

 private:
  static void* Load(const std::string& path) {
#ifdef __SANITIZE_ADDRESS__
    // The C++ library in the fake never frees its reserve for exceptions.
    const __lsan::ScopedDisabler not_a_leak;
#endif
    return dlopen(path.c_str(), RTLD_NOW);
  }

  void* const handle_;
};

}  // namespace ddprun
