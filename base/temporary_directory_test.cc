#include "base/temporary_directory.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(TemporaryDirectoryTest, IsTheFirstThatCanBeUsed) {
  for (const char* name : {"TMPDIR", "TEMP", "TMP"}) unsetenv(name);
  EXPECT_EQ(TemporaryDirectory(), "/tmp");
  const std::string ours = testing::TempDir() + "/ours";
  const std::string theirs = testing::TempDir() + "/theirs";
  for (const std::string& made : {ours, theirs}) ASSERT_TRUE(std::filesystem::create_directories(made));
  setenv("TMP", theirs.c_str(), 1);
  EXPECT_EQ(TemporaryDirectory(), theirs);
  setenv("TEMP", ours.c_str(), 1);
  EXPECT_EQ(TemporaryDirectory(), ours);
  for (const char* bad : {"/nowhere", "", "/etc/passwd"}) {
    setenv("TMPDIR", bad, 1);
    EXPECT_EQ(TemporaryDirectory(), ours) << "with TMPDIR=" << bad;
  }
  setenv("TMPDIR", theirs.c_str(), 1);
  EXPECT_EQ(TemporaryDirectory(), theirs);
}

}  // namespace
}  // namespace ddprun
