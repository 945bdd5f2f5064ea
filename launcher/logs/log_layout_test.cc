#include "launcher/logs/log_layout.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

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

// Starts workers that write their name to stdout.log, as a job does whose workers survive rounds.
class SurvivorsTest : public ::testing::Test {
 protected:
  // The workers with these local ranks are kept; `name` is written by each of the others.
  AttemptFiles Start(int restart_count, const std::set<int>& kept, const std::string& name) {
    const auto files = layout_.NewAttempt(restart_count, kWorkers, kept);
    EXPECT_TRUE(files.ok()) << files.status();
    for (int i = 0; i < kWorkers; ++i) {
      const std::string& path = files->workers[static_cast<size_t>(i)].stdout_log;
      EXPECT_EQ(path.empty(), kept.count(i) > 0) << i;
      EXPECT_FALSE(fs::exists(path));
      if (!path.empty()) std::ofstream(path) << name << i;
    }
    EXPECT_TRUE(fs::is_directory(files->dir)) << "the failure report is written there";
    return *files;
  }
  // The worker's folder, relative to the run's directory, and what was written there, for each worker.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> found;
    for (const fs::directory_entry& file : fs::recursive_directory_iterator(layout_.run_dir())) {
      if (!file.is_regular_file()) continue;
      std::string& text = found[fs::relative(file.path().parent_path(), layout_.run_dir()).string()];
      std::ifstream(file.path()) >> text;
    }
    return found;
  }
  std::vector<std::string> Names(std::vector<std::string> paths) const {
    for (std::string& path : paths) path = fs::relative(path, layout_.run_dir()).string();
    return paths;
  }

  static constexpr int kWorkers = 3;
  LogLayout layout_ = *LogLayout::Create(FreshDir("survivors"), "j");
};

TEST_F(SurvivorsTest, AFailureThatIsChargedStartsADirectory) {
  Start(0, {}, "a");
  const AttemptFiles files = Start(1, {0, 2}, "b");
  EXPECT_FALSE(files.added);
  EXPECT_EQ(Names({files.dir}), std::vector<std::string>{"attempt_1"});
  EXPECT_THAT(Names(files.in_use), UnorderedElementsAre("attempt_1", "attempt_0"));
  // The only worker that wrote in attempt_1 has ended.
  EXPECT_FALSE(Start(1, {0, 2}, "c").added);
  EXPECT_THAT(Files(), UnorderedElementsAre(Pair("attempt_0/0", "a0"), Pair("attempt_0/1", "a1"),
                                            Pair("attempt_0/2", "a2"), Pair("attempt_1.1/1", "b1"),
                                            Pair("attempt_1/1", "c1")));
}

TEST_F(SurvivorsTest, ADirectoryInWhichASurvivorWritesIsNotRenamed) {
  Start(0, {}, "a");
  const AttemptFiles files = Start(0, {0, 2}, "b");
  EXPECT_TRUE(files.added);
  EXPECT_THAT(Names(files.in_use), ElementsAre("attempt_0"));
  EXPECT_TRUE(Start(0, {2}, "c").added);
  EXPECT_THAT(Files(), UnorderedElementsAre(Pair("attempt_0/0", "a0"), Pair("attempt_0/1", "a1"),
                                            Pair("attempt_0/2", "a2"), Pair("attempt_0/1.1", "b1"),
                                            Pair("attempt_0/0.1", "c0"), Pair("attempt_0/1.2", "c1")));
  // Without survivors, the directory is renamed as usual.
  EXPECT_FALSE(Start(0, {}, "d").added);
  EXPECT_TRUE(fs::is_directory(layout_.run_dir() + "/attempt_0.1/1.2"));
  EXPECT_FALSE(fs::exists(layout_.run_dir() + "/attempt_0/1.2"));
}

TEST_F(SurvivorsTest, ANameThatIsFreeIsUsed) {
  Start(0, {}, "a");
  Start(1, {0, 2}, "b");
  EXPECT_TRUE(Start(1, {1}, "c").added);
  EXPECT_THAT(Files(), UnorderedElementsAre(Pair("attempt_0/0", "a0"), Pair("attempt_0/1", "a1"),
                                            Pair("attempt_0/2", "a2"), Pair("attempt_1/1", "b1"),
                                            Pair("attempt_1/0", "c0"), Pair("attempt_1/2", "c2")));
}

TEST_F(SurvivorsTest, AllSurvive) {
  Start(0, {}, "a");
  EXPECT_TRUE(Start(0, {0, 1, 2}, "b").added);
  const AttemptFiles files = Start(1, {0, 1, 2}, "c");
  EXPECT_FALSE(files.added);
  EXPECT_THAT(Names(files.in_use), UnorderedElementsAre("attempt_1", "attempt_0"));
  EXPECT_THAT(Files(), SizeIs(3));
}

TEST(LogLayoutTest, OlderFilesAreKept) {
  const std::string dir = FreshDir("reports"), path = dir + "/report";
  fs::create_directories(dir);
  for (const char* text : {"first", "second", "third"}) {
    EXPECT_EQ(KeepOlderFile(path), absl::OkStatus());
    std::ofstream(path) << text;
  }
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::directory_iterator(dir)) {
    std::ifstream(entry.path()) >> found[entry.path().filename()];
  }
  EXPECT_THAT(found, UnorderedElementsAre(Pair("report.1", "first"), Pair("report.2", "second"),
                                          Pair("report", "third")));
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
