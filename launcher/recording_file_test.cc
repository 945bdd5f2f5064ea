#include "launcher/recording_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
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
  std::string Content(const std::string& suffix = "") const {
    std::ifstream in(path_ + suffix, std::ios::binary);
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

TEST_F(RecordingFileTest, AProcessThatDoesNotLeadWritesNoFile) {
  auto file = RecordingFile::ForLead(io_, path_, &log_);
  file->Sink()(proto::RecordedStep());
  Flush(*file);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".3"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(RecordingFileTest, TheFileOfALeaderHasTheStepsBeforeItsLead) {
  for (const std::string suffix : {".3", ".3-2", ".3-3"}) {
    auto file = RecordingFile::ForLead(io_, path_, &log_);
    const StepSink sink = file->Sink();
    proto::RecordedStep step;
    step.mutable_stop()->set_reason("before " + suffix);
    sink(step);
    file->Begin(3);
    step.mutable_stop()->set_reason("after " + suffix);
    sink(step);
    file->Begin(4);  // no effect
    Flush(*file);
    const std::string content = Content(suffix);
    EXPECT_THAT(content, HasSubstr("ddprun recording"));
    EXPECT_LT(content.find("before " + suffix), content.find("after " + suffix));
    struct stat info {};
    ASSERT_EQ(stat((path_ + suffix).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600);
  }
  EXPECT_THAT(Content(".3"), HasSubstr("after .3"));  // not overwritten
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(RecordingFileTest, AFileOfALeaderThatCannotBeCreatedIsALineInTheLog) {
  EXPECT_THAT(std::string(RecordingFile::CheckFolder("/proc/nowhere/x.rec").message()),
              HasSubstr("--record=/proc/nowhere/x.rec: No such file"));
  EXPECT_TRUE(RecordingFile::CheckFolder(path_).ok());
  EXPECT_TRUE(RecordingFile::CheckFolder("x.rec").ok());
  auto file = RecordingFile::ForLead(io_, "/proc/nowhere/x.rec", &log_);
  const StepSink sink = file->Sink();
  sink(proto::RecordedStep());
  file->Begin(1);
  sink(proto::RecordedStep());
  Flush(*file);
  EXPECT_THAT(
      said_,
      ElementsAre(HasSubstr("--record=/proc/nowhere/x.rec.1: the recording stops here: cannot create")));
}

TEST_F(RecordingFileTest, TooManyStepsBeforeALeadAreNotRecorded) {
  auto file = RecordingFile::ForLead(io_, path_, &log_);
  const StepSink sink = file->Sink();
  proto::RecordedStep step;
  step.mutable_stop()->set_reason(std::string(RecordingFile::kMaxKeptBytes, 'x'));
  sink(step);
  file->Begin(1);
  Flush(*file);
  EXPECT_THAT(said_, ElementsAre(HasSubstr("too many processes")));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".1"));
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
