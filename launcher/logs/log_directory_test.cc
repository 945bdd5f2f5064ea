#include "launcher/logs/log_directory.h"

#include <boost/asio/io_context.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

constexpr Duration kPatience = seconds(20);

class LogDirectoryTest : public testing::Test {
 protected:
  LogDirectoryTest() {
    fs::create_directories(tmp_);
    setenv("TMPDIR", tmp_.c_str(), 1);
    config_.run_id = "j";
    config_.num_local_workers = 2;
    log_.SendTo([this](absl::string_view text) { logged_ += std::string(text); });
  }

  void Make() { logs_.emplace(io_, &config_, &log_); }
  absl::Status AwaitOpen() {
    std::optional<absl::Status> opened;
    logs_->WhenOpen([&](const absl::Status& status) { opened = status; });
    EXPECT_FALSE(opened.has_value()) << "WhenOpen must return before its callback is called";
    EXPECT_TRUE(RunUntil([&] { return opened.has_value(); }));
    return opened.value_or(absl::DeadlineExceededError("WhenOpen did not call its callback"));
  }
  // Opens the files of `wanted`. Waits until OpenFiles has called its callback.
  std::shared_ptr<StartFiles> Open(StartFiles wanted) {
    const auto files = std::make_shared<StartFiles>(std::move(wanted));
    bool opened = false;
    logs_->OpenFiles(files, [&] { opened = true; });
    EXPECT_TRUE(RunUntil([&] { return opened; }));
    return files;
  }
  void Flush() {
    bool flushed = false;
    logs_->Flush(kPatience, [&] { flushed = true; });
    EXPECT_TRUE(RunUntil([&] { return flushed; }));
  }
  template <typename F>
  bool RunUntil(F done) {
    io_.restart();
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!done() && std::chrono::steady_clock::now() < deadline) io_.run_one_until(deadline);
    return done();
  }

  static StartFiles FilesOfTwoWorkers(int restart_count = 0) {
    return {.restart_count = restart_count, .plans = std::vector<WorkerOutput::Plan>(2)};
  }

  boost::asio::io_context io_;
  const std::string tmp_ =
      testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
  LaunchConfig config_;
  AgentLog log_{"node1", ""};
  std::string logged_;
  std::optional<LogDirectory> logs_;
};

TEST_F(LogDirectoryTest, CreatesTheDirectoriesOfTheFirstStartInAdvance) {
  Make();
  ASSERT_TRUE(AwaitOpen().ok());
  EXPECT_TRUE(fs::is_directory(logs_->AttemptDir(0) + "/1"));
  bool opened = false;
  logs_->OpenFiles(std::make_shared<StartFiles>(FilesOfTwoWorkers()), [&] { opened = true; });
  EXPECT_TRUE(opened) << "OpenFiles must not wait for the file system";
  Flush();
  EXPECT_TRUE(fs::is_empty(tmp_));
}

TEST_F(LogDirectoryTest, RemovesPreparedDirectoriesThatAreNotUsed) {
  Make();
  ASSERT_TRUE(AwaitOpen().ok());
  EXPECT_THAT(Open(FilesOfTwoWorkers(3))->plans[1].files.error_json, StartsWith(logs_->AttemptDir(3)));
  EXPECT_TRUE(fs::exists(logs_->AttemptDir(3)));
  EXPECT_FALSE(fs::exists(logs_->AttemptDir(0)));
  Flush();
}

TEST_F(LogDirectoryTest, OpensTheFilesOfRedirectedStreams) {
  config_.log_dir = tmp_ + "/logs";
  Make();
  ASSERT_TRUE(AwaitOpen().ok());
  StartFiles wanted = FilesOfTwoWorkers();
  wanted.plans[1].redirects.out = true;
  const auto files = Open(std::move(wanted));
  EXPECT_TRUE(files->opened[1].out.of_worker);
  EXPECT_TRUE(fs::exists(files->plans[1].files.stdout_log));
  Flush();
  EXPECT_FALSE(fs::is_empty(config_.log_dir));
}

TEST_F(LogDirectoryTest, ErrorsNameTheOption) {
  std::ofstream(tmp_ + "/file").close();
  config_.log_dir = tmp_ + "/file/logs";
  Make();
  EXPECT_THAT(AwaitOpen().message(), HasSubstr("--log-dir: cannot create the log directory"));
  Flush();
}

TEST_F(LogDirectoryTest, DevNullMeansNoFiles) {
  config_.log_dir = "/dev/null";
  Make();
  ASSERT_TRUE(AwaitOpen().ok());
  EXPECT_EQ(logs_->AttemptDir(0), "");
  EXPECT_EQ(Open(FilesOfTwoWorkers())->plans[0].files.error_json, "");
  Flush();
  EXPECT_EQ(logged_, "");
}

TEST_F(LogDirectoryTest, OpenFilesDoesNotCallItsCallbackAfterCancelOpenFiles) {
  Make();
  ASSERT_TRUE(AwaitOpen().ok());
  std::promise<void> thaw;
  logs_->disk().Do([thawed = thaw.get_future().share()] { thawed.wait(); });
  bool first = false;
  logs_->OpenFiles(std::make_shared<StartFiles>(FilesOfTwoWorkers()), [&] { first = true; });
  logs_->CancelOpenFiles();
  thaw.set_value();
  Open(FilesOfTwoWorkers(1));
  EXPECT_FALSE(first);
  Flush();
}

// The launcher calls Flush without WhenOpen if it exits before it creates an agent.
TEST_F(LogDirectoryTest, FlushBeforeOpenLeavesNoDirectories) {
  Make();
  Flush();
  EXPECT_TRUE(fs::is_empty(tmp_));
}

TEST_F(LogDirectoryTest, FlushTimesOutOnAStalledFileSystem) {
  Make();
  ASSERT_TRUE(AwaitOpen().ok());
  std::promise<void> thaw;
  logs_->disk().Do([thawed = thaw.get_future().share()] { thawed.wait(); }, nullptr, 2048);
  bool flushed = false;
  logs_->Flush(milliseconds(20), [&] { flushed = true; });
  EXPECT_TRUE(RunUntil([&] { return flushed; }));
  EXPECT_THAT(logged_, HasSubstr("has not answered for 20ms: the last output, about 2 KiB, is not on disk"));
  thaw.set_value();
}

}  // namespace
}  // namespace ddprun
