#include "launcher/progress/heartbeat_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

void SetTime(const std::string& path, time_t seconds) {
  timespec times[2] = {};
  times[0].tv_sec = times[1].tv_sec = seconds;
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST(HeartbeatFilesTest, AnyChangeIsAHeartbeat) {
  HeartbeatFiles files(3);
  const std::string path = files.path(LocalRank(1));
  EXPECT_THAT(files.Changed(), IsEmpty());
  SetTime(path, 4'000'000'000);
  EXPECT_THAT(files.Changed(), ElementsAre(LocalRank(1))) << "a clock that is ahead";
  EXPECT_THAT(files.Changed(), IsEmpty());
  SetTime(path, 5);
  EXPECT_THAT(files.Changed(), ElementsAre(LocalRank(1))) << "a clock that goes back";
  std::ofstream(path, std::ios::app) << "step 7\n";
  std::ofstream(files.path(LocalRank(0)), std::ios::app) << "step 7\n";
  EXPECT_THAT(files.Changed(), ElementsAre(LocalRank(0), LocalRank(1)));
}

TEST(HeartbeatFilesTest, AFileThatGrowsDoesNotFillTheMemory) {
  HeartbeatFiles files(1);
  const std::string path = files.path(LocalRank(0));
  std::ofstream(path, std::ios::app) << std::string(100'000, 'x');
  EXPECT_THAT(files.Changed(), ElementsAre(LocalRank(0)));
  EXPECT_EQ(std::filesystem::file_size(path), 0u);
  EXPECT_THAT(files.Changed(), IsEmpty());
}

// Workers are shells or scripts of any language.
TEST(HeartbeatFilesTest, AProgramTouchesTheFile) {
  HeartbeatFiles files(1);
  ASSERT_EQ(std::system(("touch " + files.path(LocalRank(0))).c_str()), 0);
  EXPECT_THAT(files.Changed(), ElementsAre(LocalRank(0)));
}

TEST(HeartbeatFilesTest, NothingIsLeft) {
  std::string path;
  {
    const HeartbeatFiles files(1);
    path = files.path(LocalRank(0));
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace ddprun
