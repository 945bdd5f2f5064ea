// In place of the stand-in's tests, if the build has no CUDA toolkit.
#include <dlfcn.h>
#include <gtest/gtest.h>

namespace {

#ifdef DDPRUN_HAVE_CUDA
#error "this test is for builds without a toolkit"
#endif

TEST(WithoutToolkitTest, TheStandInHasNoFunctions) {
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "cuInit"), nullptr);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "ncclGetVersion"), nullptr);
}

}  // namespace
