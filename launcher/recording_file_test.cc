#include "launcher/recording_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RecordingFileTest : public ::testing::Test {
 protected:
  RecordingFileTest() : log_("n0", "") {
    log_.SendTo([this](absl::string_view line) { said_.emplace_back(line); });
  }
  void Flush(RecordingFile& file) {
    bool flushed = false;
    file.Flush([&] { flushed = true; });
    while (!flushed && io_.run_one() > 0) {
    }
    ASSERT_TRUE(flushed);
  }
  std::string Content() const {
    std::ifstream in(path_, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  boost::asio::io_context io_;
  AgentLog log_;
  std::vector<std::string> said_;
  const std::string path_ =
      absl::StrCat(std::getenv("TEST_TMPDIR"), "/",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".rec");
};

TEST_F(RecordingFileTest, WritesStepsThatOnlyTheOwnerCanRead) {
  auto file = RecordingFile::Open(io_, path_, &log_);
  ASSERT_TRUE(file.ok()) << file.status();
  const StepSink sink = (*file)->Sink();
  proto::RecordedStep step;
  step.mutable_stop()->set_reason("requested by a user");
  sink(step);
  Flush(**file);
  EXPECT_THAT(Content(), HasSubstr("ddprun recording"));
  EXPECT_THAT(Content(), HasSubstr("requested by a user"));
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(RecordingFileTest, TruncatesAnExistingFileAndRestrictsItsMode) {
  std::ofstream(path_) << "readable by others";
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  auto file = RecordingFile::Open(io_, path_, &log_);
  ASSERT_TRUE(file.ok()) << file.status();
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
  EXPECT_EQ(info.st_size, 0);
}

TEST_F(RecordingFileTest, ReportsAPathThatCannotBeCreated) {
  const auto file = RecordingFile::Open(io_, "/proc/nowhere/x.rec", &log_);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("--record=/proc/nowhere/x.rec: No such file"));
}

TEST_F(RecordingFileTest, RejectsAFifoWithoutAReader) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(RecordingFile::Open(io_, path_, &log_).ok());
}

TEST_F(RecordingFileTest, LogsAFullDiskOnce) {
  auto file = RecordingFile::Open(io_, "/dev/full", &log_);
  ASSERT_TRUE(file.ok()) << file.status();
  const StepSink sink = (*file)->Sink();
  proto::RecordedStep step;
  step.mutable_tick();
  for (int i = 0; i < 10; ++i) sink(step);
  Flush(**file);
  EXPECT_THAT(
      said_,
      ElementsAre(HasSubstr("--record=/dev/full: the recording stops here: write failed: No space left")));
}

}  // namespace
}  // namespace ddprun
