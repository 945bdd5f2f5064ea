#include "launcher/logs/log_layout.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string FreshDir(const std::string& name) {
  const std::string dir = absl::StrCat(testing::TempDir(), "/", name);
  fs::remove_all(dir);
  return dir;
}

TEST(LogLayoutTest, UsesTheSamePathsAsTorchrun) {
  const std::string base = FreshDir("logs/deep");
  auto layout = LogLayout::Create(base, "job/1");
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_THAT(layout->run_dir(), MatchesRegex(base + "/job_1_[0-9A-Za-z]{8}"));
  const auto files = layout->NewAttempt(0, 2);
  ASSERT_TRUE(files.ok()) << files.status();
  const std::string attempt = layout->run_dir() + "/attempt_0";
  EXPECT_EQ(files->dir, attempt);
  ASSERT_EQ(files->workers.size(), 2u);
  EXPECT_EQ(files->workers[1].stdout_log, attempt + "/1/stdout.log");
  EXPECT_EQ(files->workers[1].stderr_log, attempt + "/1/stderr.log");
  EXPECT_EQ(files->workers[0].error_json, attempt + "/0/error.json");
  EXPECT_EQ(files->filtered_stdout_log, attempt + "/filtered_stdout.log");
  EXPECT_EQ(files->filtered_stderr_log, attempt + "/filtered_stderr.log");
  EXPECT_TRUE(fs::is_directory(attempt + "/1"));
}

TEST(LogLayoutTest, KeepsOlderFilesOfAReusedAttemptNumber) {
  auto layout = LogLayout::Create(FreshDir("again"), "j");
  ASSERT_TRUE(layout.ok());
  const std::string run = layout->run_dir();
  const auto start = [&](int restart_count, const std::string& text) {
    const auto files = layout->NewAttempt(restart_count, 1);
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(files->dir, absl::StrCat(run, "/attempt_", restart_count));
    EXPECT_FALSE(fs::exists(files->workers[0].stdout_log));
    std::ofstream(files->workers[0].stdout_log) << text;
  };
  start(0, "first");
  start(0, "second");
  start(1, "third");
  start(0, "fourth");
  const auto text = [&](const std::string& attempt) {
    std::string read;
    std::ifstream(run + "/" + attempt + "/0/stdout.log") >> read;
    return read;
  };
  EXPECT_EQ(text("attempt_0"), "fourth");
  EXPECT_EQ(text("attempt_0.1"), "first");
  EXPECT_EQ(text("attempt_0.2"), "second");
  EXPECT_EQ(text("attempt_1"), "third");
}

TEST(LogLayoutTest, APreparedAttemptIsUsedOrRemoved) {
  const std::string base = FreshDir("prepared");
  {
    auto layout = LogLayout::Create(base, "j");
    const std::string run = layout->run_dir();
    EXPECT_FALSE(layout->IsPrepared(0, 2));
    layout->PrepareAttempt(0, 2);
    EXPECT_TRUE(layout->IsPrepared(0, 2));
    EXPECT_FALSE(layout->IsPrepared(0, 3));
    EXPECT_FALSE(layout->IsPrepared(1, 2));
    ASSERT_TRUE(layout->NewAttempt(0, 2).ok());
    EXPECT_TRUE(fs::is_directory(run + "/attempt_0/1"));
    EXPECT_FALSE(layout->IsPrepared(0, 2)) << "an attempt in use must not count as prepared";
    layout->PrepareAttempt(1, 2);
    EXPECT_TRUE(fs::is_directory(run + "/attempt_1/1"));
    ASSERT_TRUE(layout->NewAttempt(5, 2).ok());
    EXPECT_FALSE(fs::exists(run + "/attempt_1"));
    EXPECT_TRUE(fs::is_directory(run + "/attempt_5/1"));
    layout->PrepareAttempt(6, 1);
    EXPECT_TRUE(fs::exists(run + "/attempt_6"));
  }
  const fs::path run = fs::directory_iterator(base)->path();
  EXPECT_FALSE(fs::exists(run / "attempt_6"));
  EXPECT_TRUE(fs::exists(run / "attempt_5"));
}

TEST(LogLayoutTest, TwoLaunchersCanShareABase) {
  const std::string base = FreshDir("shared");
  const auto one = LogLayout::Create(base, "j");
  const auto two = LogLayout::Create(base, "j");
  EXPECT_NE(one->run_dir(), two->run_dir());
}

TEST(LogLayoutTest, DevNullMeansNoFiles) {
  auto layout = LogLayout::Create("/dev/null", "j");
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->run_dir(), "");
  const auto files = layout->NewAttempt(0, 3);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->dir, "");
  ASSERT_EQ(files->workers.size(), 3u);
  EXPECT_EQ(files->workers[2].stdout_log, "");
  EXPECT_EQ(files->workers[2].error_json, "");
  EXPECT_EQ(files->filtered_stdout_log, "");
}

TEST(LogLayoutTest, RemovesATemporaryBaseOnlyIfItIsEmpty) {
  const std::string tmp = FreshDir("tmp");
  fs::create_directories(tmp);
  setenv("TMPDIR", tmp.c_str(), 1);
  { ASSERT_TRUE(LogLayout::Create("", "j")->NewAttempt(0, 2).ok()); }
  EXPECT_TRUE(fs::is_empty(tmp));
  std::string file;
  {
    auto layout = LogLayout::Create("", "j");
    EXPECT_THAT(layout->run_dir(), MatchesRegex(tmp + "/torchelastic_......(/.*)"));
    file = layout->NewAttempt(0, 2)->workers[1].error_json;
    std::ofstream(file) << "x";
  }
  EXPECT_TRUE(fs::exists(file));
  EXPECT_FALSE(fs::exists(fs::path(file).parent_path().parent_path() / "0"));
  unsetenv("TMPDIR");
}

TEST(LogLayoutTest, KeepsABaseGivenByTheUser) {
  const std::string base = FreshDir("mine");
  { ASSERT_TRUE(LogLayout::Create(base, "j")->NewAttempt(0, 1).ok()); }
  EXPECT_FALSE(fs::is_empty(base));
}

TEST(LogLayoutTest, ErrorsNameThePath) {
  const auto layout = LogLayout::Create("/proc/no/such", "j");
  ASSERT_FALSE(layout.ok());
  EXPECT_THAT(std::string(layout.status().message()), HasSubstr("/proc/no/such"));
}

}  // namespace
}  // namespace ddprun
