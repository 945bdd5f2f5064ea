#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "os/files.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

class TemporaryDirectoryTest : public testing::Test {
 protected:
  TemporaryDirectoryTest() {
    for (const char* name : {"TMPDIR", "TEMP", "TMP"}) unsetenv(name);
    for (const std::string& dir : {first_, second_}) std::filesystem::create_directories(dir);
  }
  const std::string first_ = testing::TempDir() + "/first";
  const std::string second_ = testing::TempDir() + "/second";
};

TEST_F(TemporaryDirectoryTest, ReturnsTheFirstUsableDirectory) {
  EXPECT_EQ(*TemporaryDirectory(), "/tmp");
  setenv("TMP", second_.c_str(), 1);
  EXPECT_EQ(*TemporaryDirectory(), second_);
  setenv("TEMP", first_.c_str(), 1);
  EXPECT_EQ(*TemporaryDirectory(), first_);
  // For /proc, access() reports that root may write, but no file can be created there.
  for (const char* bad : {"/nowhere", "", "/etc/passwd", "/proc"}) {
    setenv("TMPDIR", bad, 1);
    EXPECT_EQ(*TemporaryDirectory(), first_) << "with TMPDIR=" << bad;
  }
  setenv("TMPDIR", second_.c_str(), 1);
  EXPECT_EQ(*TemporaryDirectory(), second_);
  EXPECT_TRUE(std::filesystem::is_empty(second_)) << "the probe file must be removed";
}

TEST_F(TemporaryDirectoryTest, RelativePathIsMadeAbsolute) {
  ASSERT_EQ(chdir(testing::TempDir().c_str()), 0);
  setenv("TMPDIR", "first", 1);
  EXPECT_EQ(*TemporaryDirectory(), std::filesystem::current_path() / "first");
}

// The test sets the file size limit to 0, so that no file can be written.
TEST_F(TemporaryDirectoryTest, ErrorNamesTheDirectoriesTried) {
  setenv("TMPDIR", first_.c_str(), 1);
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const absl::StatusOr<std::string> dir = TemporaryDirectory();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  ASSERT_FALSE(dir.ok()) << *dir;
  for (const std::string& place : {first_, std::string("/var/tmp"), std::string("set TMPDIR")}) {
    EXPECT_THAT(std::string(dir.status().message()), HasSubstr(place));
  }
}

}  // namespace
}  // namespace ddprun
