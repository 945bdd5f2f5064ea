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
    for (const std::string& made : {ours_, theirs_}) std::filesystem::create_directories(made);
  }
  const std::string ours_ = testing::TempDir() + "/ours";
  const std::string theirs_ = testing::TempDir() + "/theirs";
};

TEST_F(TemporaryDirectoryTest, IsTheFirstUsableDirectory) {
  EXPECT_EQ(*TemporaryDirectory(), "/tmp");
  setenv("TMP", theirs_.c_str(), 1);
  EXPECT_EQ(*TemporaryDirectory(), theirs_);
  setenv("TEMP", ours_.c_str(), 1);
  EXPECT_EQ(*TemporaryDirectory(), ours_);
  // In /proc, access() reports that root may write, but no file can be created.
  for (const char* bad : {"/nowhere", "", "/etc/passwd", "/proc"}) {
    setenv("TMPDIR", bad, 1);
    EXPECT_EQ(*TemporaryDirectory(), ours_) << "with TMPDIR=" << bad;
  }
  setenv("TMPDIR", theirs_.c_str(), 1);
  EXPECT_EQ(*TemporaryDirectory(), theirs_);
  EXPECT_TRUE(std::filesystem::is_empty(theirs_)) << "the probe file is removed";
}

TEST_F(TemporaryDirectoryTest, RelativePathIsMadeAbsolute) {
  ASSERT_EQ(chdir(testing::TempDir().c_str()), 0);
  setenv("TMPDIR", "ours", 1);
  EXPECT_EQ(*TemporaryDirectory(), std::filesystem::current_path() / "ours");
}

// Sets the file size limit to 0, so that no file can be written.
TEST_F(TemporaryDirectoryTest, ErrorNamesTheDirectoriesTried) {
  setenv("TMPDIR", ours_.c_str(), 1);
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const absl::StatusOr<std::string> dir = TemporaryDirectory();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  ASSERT_FALSE(dir.ok()) << *dir;
  for (const std::string& place : {ours_, std::string("/var/tmp"), std::string("set TMPDIR")}) {
    EXPECT_THAT(std::string(dir.status().message()), HasSubstr(place));
  }
}

}  // namespace
}  // namespace ddprun
