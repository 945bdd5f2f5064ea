#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

// Returns the load address of the object that contains `function`.
void* BaseOf(void* function) {
  Dl_info info;
  EXPECT_NE(dladdr(function, &info), 0);
  return info.dli_fbase;
}

void* AddressOfMalloc() { return dlsym(RTLD_DEFAULT, "malloc"); }

TEST(OlderGlibcTest, ProgramUsesItsOwnDefinitions) {
  void* const here = BaseOf(reinterpret_cast<void*>(&BaseOf));
  EXPECT_EQ(BaseOf(reinterpret_cast<void*>(&_dl_find_object)), here);
  EXPECT_EQ(BaseOf(reinterpret_cast<void*>(&arc4random)), here);
}

TEST(OlderGlibcTest, FindsUnwindTablesOfProgramAndLibraries) {
  for (void* const pc : {reinterpret_cast<void*>(&BaseOf), AddressOfMalloc()}) {
    dl_find_object found = {};
    ASSERT_EQ(_dl_find_object(pc, &found), 0);
    EXPECT_LE(found.dlfo_map_start, pc);
    EXPECT_GT(found.dlfo_map_end, pc);
    EXPECT_EQ(found.dlfo_map_start, BaseOf(pc));
    EXPECT_EQ(*static_cast<const uint8_t*>(found.dlfo_eh_frame), 1)
        << "the version of .eh_frame_hdr must be 1";
  }
}

TEST(OlderGlibcTest, FindsNoUnwindTablesOutsideLoadedObjects) {
  const auto heap = std::make_unique<int>(0);
  dl_find_object found;
  EXPECT_EQ(_dl_find_object(heap.get(), &found), -1);
  EXPECT_EQ(_dl_find_object(nullptr, &found), -1);
}

TEST(OlderGlibcTest, ExceptionsAreCaught) {
  EXPECT_THROW(throw std::runtime_error("x"), std::runtime_error);
  EXPECT_THROW((void)std::stoi("no number"), std::invalid_argument);
}

TEST(OlderGlibcTest, RandomNumbersDiffer) {
  std::set<uint32_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(arc4random());
  EXPECT_GT(seen.size(), 990u);
}

}  // namespace
