#include "launcher/workers/notice_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/json/parse.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "base/time.h"
#include "base/worker_message.h"
#include "os/files.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr seconds kPatience{20};

TimePoint In(Duration time) { return std::chrono::steady_clock::now() + time; }

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Makes an empty directory, which TemporaryDirectory() then returns.
std::string MakeTemporaryDirectory() {
  std::string dir = testing::TempDir() + "notices.XXXXXX";
  EXPECT_NE(mkdtemp(dir.data()), nullptr);
  setenv("TMPDIR", dir.c_str(), 1);
  return dir;
}

class NoticeFileTest : public testing::Test {
 protected:
  ~NoticeFileTest() override { std::filesystem::remove_all(dir_); }

  void RunUntil(int num_written) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (num_written_ < num_written && std::chrono::steady_clock::now() < deadline) {
      io_.restart();
      io_.run_one_until(deadline);
    }
    ASSERT_EQ(num_written_, num_written);
  }
  void SetUp() override {
    bool opened = false;
    file_.Open([&] { opened = true; });
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!opened && io_.run_one_until(deadline) > 0) io_.restart();
    ASSERT_TRUE(opened);
  }
  [[nodiscard]] int NumFiles() const {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(dir_), {}));
  }

  const std::string dir_ = MakeTemporaryDirectory();
  boost::asio::io_context io_;
  int num_written_ = 0;
  absl::Status status_;
  bool remove_ = false;  // each file that was written
  NoticeFile file_{io_, [this](const absl::StatusOr<int>& written) {
                     ++num_written_;
                     status_ = written.status();
                     if (remove_ && written.ok()) RemoveFileOf(*written);
                   }};
};

TEST_F(NoticeFileTest, TheFileHasTheTimeAndTheReason) {
  EXPECT_EQ(std::filesystem::path(file_.path()).parent_path(), dir_);
  EXPECT_EQ(NumFiles(), 0);
  const double expected = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()) + 30;
  file_.Write({In(seconds(30)), "received \"SIGUSR1\"\xff"});
  RunUntil(1);
  EXPECT_TRUE(status_.ok()) << status_;
  const boost::json::value value = boost::json::parse(Read(file_.path()));
  EXPECT_EQ(value.at("reason").as_string(), "received \"SIGUSR1\"\xEF\xBF\xBD");
  EXPECT_NEAR(value.at("stop_at").as_double(), expected, 5);
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(NoticeFileTest, ALaterNoticeReplacesTheFile) {
  file_.Write({In(seconds(30)), "first"});
  const std::string path = file_.path();
  file_.Write({In(seconds(3)), "second"});
  RunUntil(2);
  EXPECT_EQ(file_.path(), path);
  EXPECT_THAT(Read(path), HasSubstr("second"));
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(NoticeFileTest, ANewRoundHasAnotherPathAndNoFile) {
  file_.Write({In(seconds(9)), "first"});
  const std::string path = file_.path();
  file_.BeginRound();
  EXPECT_NE(file_.path(), path);
  file_.Write({In(seconds(9)), "second"});
  RunUntil(2);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(Read(file_.path()), HasSubstr("second"));
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(NoticeFileTest, TheDescriptorIsThatOfTheFile) {
  remove_ = true;
  file_.Write({In(seconds(9)), "first"});
  RunUntil(1);
  EXPECT_EQ(NumFiles(), 0);
}

TEST_F(NoticeFileTest, AnErrorNamesThePath) {
  std::filesystem::remove_all(dir_);
  file_.Write({In(seconds(9)), "first"});
  RunUntil(1);
  EXPECT_EQ(status_.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status_.message()), HasSubstr(file_.path()));
}

}  // namespace
}  // namespace ddprun
