// Tests logging to a full disk. The disk is a small tmpfs in the test's own mount namespace.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/logs/disk_thread.h"
#include "launcher/logs/log_layout.h"
#include "launcher/logs/worker_output.h"
#include "launcher/process/testing/own_mounts.h"
#include "launcher/process/warden_client.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr seconds kPatience{20};
constexpr int kLines = 400;
constexpr Streams kNone{};
constexpr Streams kBoth{.out = true, .err = true};

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the text that the worker prints to each of its streams.
std::string AllLines() {
  std::string text;
  for (int i = 0; i < kLines; ++i) absl::StrAppend(&text, "a line of some length, number ", i, "\n");
  return text;
}

class FullDiskTest : public testing::Test {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    disk_ = absl::StrCat(testing::TempDir(), "/diskXXXXXX");
    ASSERT_NE(mkdtemp(disk_.data()), nullptr);
    const absl::Status own = UseOwnMounts();
    if (!own.ok() || mount("ddprun_test", disk_.c_str(), "tmpfs", 0, "size=64k") != 0) {
      rmdir(disk_.c_str());
      GTEST_SKIP() << "cannot mount a file system on this system: " << own;
    }
    mounted_ = true;
    auto layout = LogLayout::Create(disk_, "job");
    ASSERT_TRUE(layout.ok()) << layout.status();
    layout_.emplace(*std::move(layout));
    OpenConsole();
  }
  void TearDown() override {
    if (!mounted_) return;
    EXPECT_EQ(umount2(disk_.c_str(), MNT_DETACH), 0);
    EXPECT_EQ(rmdir(disk_.c_str()), 0);
  }

  // Fills the disk except for `left` bytes.
  void Fill(off_t left) {
    const UniqueFd file(open(Filler().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::string block(4096, 'x');
    off_t size = 0;
    while (write(file.get(), block.data(), block.size()) == static_cast<ssize_t>(block.size())) {
      size += static_cast<off_t>(block.size());
    }
    ASSERT_EQ(errno, ENOSPC);
    ASSERT_EQ(ftruncate(file.get(), size - left), 0);
  }
  void MakeRoom() { ASSERT_EQ(unlink(Filler().c_str()), 0); }
  std::string Filler() const { return disk_ + "/filler"; }

  void NewAttempt() {
    auto files = layout_->NewAttempt(attempt_++, 1);
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = files->workers[0];
  }
  // Opens the output of local rank 0 in the newest attempt.
  std::unique_ptr<WorkerOutput> Open(Streams redirects, Streams tee) {
    const WorkerOutput::Plan plan{
        .redirects = redirects, .tee = tee, .files = files_, .prefix = "[default0]:"};
    return std::make_unique<WorkerOutput>(*console_, thread_, plan, WorkerOutput::OpenFiles(plan));
  }
  // Runs a worker that prints AllLines to both streams. Drains the output, flushes the console, and returns
  // how the worker exited.
  ExitInfo RunWorker(WorkerOutput& output) {
    std::optional<ExitInfo> exit;
    WardenClient client(io_, StartWarden(),
                        {.started = [](auto, auto) {},
                         .ended = [&](auto, const ExitInfo& e, const auto&) { exit = e; },
                         .warden_lost = [](const auto&) {}});
    client.Spawn(1, {.argv = {"/bin/sh", "-c",
                              absl::StrCat("i=0; while [ $i -lt ", kLines,
                                           " ]; do for fd in 1 2; do echo \"a line of some length, number "
                                           "$i\" >&$fd; done; i=$((i+1)); done; exit 0")},
                     .env = {{"PATH", "/usr/bin:/bin"}},
                     .stdout_fd = output.stdout_fd(),
                     .stderr_fd = output.stderr_fd()});
    output.CloseChildEnds();
    EXPECT_TRUE(RunUntil([&] { return exit.has_value(); }));
    EXPECT_TRUE(Drain(output));
    EXPECT_TRUE(Flush());
    return exit.value_or(NeverStarted{absl::DeadlineExceededError("the worker did not exit")});
  }
  bool RunUntil(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      io_.restart();
      io_.run_one_until(deadline);
    }
    return done();
  }
  bool Drain(WorkerOutput& output) {
    bool drained = false;
    output.Drain(kPatience, [&] { drained = true; });
    return RunUntil([&] { return drained; });
  }
  bool Flush() {
    bool flushed = false;
    console_->Flush(kPatience, [&] { flushed = true; });
    return RunUntil([&] { return flushed; });
  }
  // Returns the console's stdout if `stream` is 0, or its stderr if `stream` is 1. Both are files on another
  // file system.
  std::string Shown(int stream) const { return Contents(shown_[stream]); }

  std::string disk_;
  bool mounted_ = false;
  std::optional<LogLayout> layout_;
  int attempt_ = 0;
  WorkerFiles files_;
  std::vector<std::string> warnings_;
  boost::asio::io_context io_;
  DiskThread thread_{io_};
  std::string shown_[2];
  UniqueFd console_fds_[2];
  std::optional<Console> console_;

 private:
  void OpenConsole() {
    for (int i = 0; i < 2; ++i) {
      shown_[i] = absl::StrCat(testing::TempDir(), "/shownXXXXXX");
      console_fds_[i].Reset(mkostemp(shown_[i].data(), O_CLOEXEC | O_APPEND));
      ASSERT_TRUE(console_fds_[i]);
    }
    console_.emplace(
        io_, [this](const absl::Status& s) { warnings_.emplace_back(s.message()); }, console_fds_[0].get(),
        console_fds_[1].get());
  }
};

std::string Prefixed(const std::string& text) {
  std::string prefixed;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at) + 1;
    absl::StrAppend(&prefixed, "[default0]:", text.substr(at, end - at));
    at = end;
  }
  return prefixed;
}

TEST_F(FullDiskTest, TeeShowsAllOutputAndTheNextAttemptWritesFilesAgain) {
  NewAttempt();
  Fill(8192);
  const auto output = Open(kNone, kBoth);
  EXPECT_EQ(RunWorker(*output), ExitInfo(Exited{0}));
  EXPECT_EQ(Shown(0), Prefixed(AllLines()));
  EXPECT_EQ(Shown(1), Prefixed(AllLines()));
  EXPECT_EQ(output->StderrTail(), AllLines().substr(AllLines().size() - output->StderrTail()->size()));
  EXPECT_THAT(warnings_,
              UnorderedElementsAre(AllOf(HasSubstr(files_.stdout_log), HasSubstr("No space left on device")),
                                   AllOf(HasSubstr(files_.stderr_log), HasSubstr("No space left on device"))))
      << "there must be one warning for each file";
  for (const std::string& path : {files_.stdout_log, files_.stderr_log}) {
    EXPECT_TRUE(absl::StartsWith(AllLines(), Contents(path)))
        << path << " must have the beginning of the output";
  }
  EXPECT_GT(Contents(files_.stdout_log).size() + Contents(files_.stderr_log).size(), 0u);

  MakeRoom();
  warnings_.clear();
  NewAttempt();
  EXPECT_EQ(RunWorker(*Open(kNone, kBoth)), ExitInfo(Exited{0}));
  EXPECT_EQ(Contents(files_.stdout_log), AllLines());
  EXPECT_EQ(Contents(files_.stderr_log), AllLines());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(FullDiskTest, WritesAGapLineWhenThereIsRoomAgain) {
  NewAttempt();
  Fill(0);
  const auto output = Open(kNone, kBoth);
  const auto print = [&](const std::string& text) {
    const std::string want = absl::StrCat(Shown(0), "[default0]:", text);
    ASSERT_EQ(write(output->stdout_fd(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ASSERT_TRUE(RunUntil([&] { return Shown(0) == want && thread_.idle(); }));
  };
  print("lost one\n");
  print("lost two\n");
  MakeRoom();
  print("kept\n");
  print("kept two\n");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Contents(files_.stdout_log),
            "\n[ddprun: 18 bytes are missing here because the disk was full]\nkept\nkept two\n");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr(files_.stdout_log)));
}

TEST_F(FullDiskTest, WarnsAboutAFileThatTheWorkerWritesItself) {
  NewAttempt();
  Fill(8192);
  EXPECT_EQ(RunWorker(*Open(kBoth, kNone)), ExitInfo(Exited{0}));
  EXPECT_THAT(warnings_,
              ElementsAre(AllOf(HasSubstr(files_.stdout_log), HasSubstr("No space left on device")),
                          AllOf(HasSubstr(files_.stderr_log), HasSubstr("No space left on device"))));
  EXPECT_LT(Contents(files_.stdout_log).size(), AllLines().size()) << "the disk must have been full";

  MakeRoom();
  warnings_.clear();
  NewAttempt();
  EXPECT_EQ(RunWorker(*Open(kBoth, kNone)), ExitInfo(Exited{0}));
  EXPECT_EQ(Contents(files_.stdout_log), AllLines());
  EXPECT_EQ(Contents(files_.stderr_log), AllLines());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(FullDiskTest, ReportsDirectoriesThatCannotBeCreatedAndTheNextAttemptRetries) {
  ASSERT_EQ(mount("none", disk_.c_str(), nullptr, MS_REMOUNT, "size=64k,nr_inodes=3"), 0);
  const auto failed = layout_->NewAttempt(0, 1);
  EXPECT_EQ(failed.status().code(), absl::StatusCode::kResourceExhausted) << failed.status();
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr(layout_->run_dir() + "/attempt_0"));
  files_ = {};  // The agent continues without files.
  EXPECT_EQ(RunWorker(*Open(kBoth, kNone)), ExitInfo(Exited{0}));
  EXPECT_EQ(Shown(0), AllLines());
  EXPECT_EQ(Shown(1), AllLines());
  ASSERT_EQ(mount("none", disk_.c_str(), nullptr, MS_REMOUNT, "size=64k,nr_inodes=100"), 0);
  EXPECT_TRUE(layout_->NewAttempt(0, 1).ok());
}

}  // namespace
}  // namespace ddprun
