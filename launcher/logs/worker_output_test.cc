#include "launcher/logs/worker_output.h"

#include <stdlib.h>

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/logs/testing/output_fixture.h"
#include "launcher/process/warden_client.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WorkerOutputTest : public OutputFixture {};

TEST_F(WorkerOutputTest, InheritsStdoutByDefault) {
  const auto output = Open(kNone, kNone);
  EXPECT_EQ(output->stdout_fd(), console_pipes_[0].writer.get());
  EXPECT_TRUE(Drain(*output));
}

TEST_F(WorkerOutputTest, PassesWholeLinesOfASharedStdout) {
  WorkerOutput::Plan plan = Plan(kNone, kNone);
  plan.alone = false;
  WorkerOutput one = Open(plan);
  WorkerOutput other = Open(plan);
  EXPECT_NE(one.stdout_fd(), console_pipes_[0].writer.get());
  EXPECT_NE(one.stderr_fd(), one.stdout_fd());
  Print(one.stdout_fd(), "first half, ");
  Print(other.stdout_fd(), "whole\n");
  Print(one.stderr_fd(), "err\n");
  std::string shown;
  ASSERT_TRUE(RunUntil([&] { return !(shown += Shown(0)).empty(); }));
  EXPECT_EQ(shown, "whole\n");
  Print(one.stdout_fd(), "second half\r\nend");
  EXPECT_TRUE(Drain(one));
  EXPECT_TRUE(Drain(other));
  EXPECT_EQ(shown + Shown(0), "whole\nfirst half, second half\r\nend");
  EXPECT_EQ(Shown(1), "err\n");
  EXPECT_EQ(one.StderrTail(), "err\n");
}

TEST_F(WorkerOutputTest, InheritsStdoutThatIsADevice) {
  const UniqueFd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  OpenConsole(null.get(), console_pipes_[1].writer.get());
  WorkerOutput::Plan plan = Plan(kNone, kNone);
  plan.alone = false;
  EXPECT_EQ(Open(plan).stdout_fd(), null.get());
}

TEST_F(WorkerOutputTest, BothStreamsShareAPipeIfTheAgentsStreamsAreTheSame) {
  const UniqueFd same(fcntl(console_pipes_[0].writer.get(), F_DUPFD_CLOEXEC, 3));
  OpenConsole(console_pipes_[0].writer.get(), same.get());
  const auto output = Open(kNone, kNone);
  EXPECT_EQ(output->stdout_fd(), output->stderr_fd());
  std::string printed;
  for (int i = 0; i < 100; ++i) {
    for (const int fd : {output->stdout_fd(), output->stderr_fd()}) {
      const std::string line = absl::StrCat("line ", i, " to ", printed.size(), "\n");
      Print(fd, line);
      printed += line;
    }
  }
  console_->err().Write("of the launcher\n");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Shown(0), "of the launcher\n" + printed);
  EXPECT_EQ(output->StderrTail(), printed);
}

// For example, with `--tee=2 2>&1 | tee`, stdout is not inherited, because the lines of stderr are written to
// the same pipe.
TEST_F(WorkerOutputTest, InheritsNothingIfTheAgentsStreamsAreTheSame) {
  const UniqueFd same(fcntl(console_pipes_[0].writer.get(), F_DUPFD_CLOEXEC, 3));
  OpenConsole(console_pipes_[0].writer.get(), same.get());
  const auto output = Open(kNone, kErr);
  EXPECT_NE(output->stdout_fd(), console_pipes_[0].writer.get());
  EXPECT_NE(output->stdout_fd(), output->stderr_fd());
  Print(output->stdout_fd(), "half");
  Print(output->stderr_fd(), "err\n");
  EXPECT_TRUE(Drain(*output));
  EXPECT_THAT(Shown(0), testing::AnyOf("[default0]:err\nhalf", "half\n[default0]:err\n"));
}

TEST_F(WorkerOutputTest, PassesStderrUnchangedAndKeepsItsTail) {
  const auto output = Open(kNone, kNone);
  EXPECT_NE(output->stderr_fd(), console_pipes_[1].writer.get());
  Print(output->stderr_fd(), "50%\r100%\nlast words");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Shown(1), "50%\r100%\nlast words");
  EXPECT_EQ(output->StderrTail(), "50%\r100%\nlast words");
}

TEST_F(WorkerOutputTest, InheritsATerminalStderrWithoutATail) {
  const UniqueFd terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal);
  ASSERT_EQ(isatty(terminal.get()), 1);
  OpenConsole(console_pipes_[0].writer.get(), terminal.get());
  const auto output = Open(kNone, kNone);
  EXPECT_EQ(output->stderr_fd(), terminal.get());
  EXPECT_EQ(output->StderrTail(), std::nullopt);
}

TEST_F(WorkerOutputTest, RedirectedStreamsGoOnlyToFiles) {
  const auto output = Open(kBoth, kNone);
  Print(output->stdout_fd(), "out\n");
  Print(output->stderr_fd(), "err\n");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Contents(files_.stdout_log), "out\n");
  EXPECT_EQ(Contents(files_.stderr_log), "err\n");
  EXPECT_EQ(output->StderrTail(), "err\n");
  EXPECT_EQ(Shown(0) + Shown(1), "");
}

TEST_F(WorkerOutputTest, TeeWritesUnchangedFilesAndPrefixedConsoleLines) {
  const auto output = Open(kNone, kBoth);
  Print(output->stdout_fd(), "one\ntw");
  Print(output->stderr_fd(), "err\n");
  Print(output->stdout_fd(), "o\nend");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Contents(files_.stdout_log), "one\ntwo\nend");
  EXPECT_EQ(Contents(files_.stderr_log), "err\n");
  EXPECT_EQ(Shown(0), "[default0]:one\n[default0]:two\n[default0]:end\n");
  EXPECT_EQ(Shown(1), "[default0]:err\n");
  EXPECT_EQ(output->StderrTail(), "err\n");
}

TEST_F(WorkerOutputTest, TeeOverridesRedirectForEachStream) {
  const auto output = Open(kBoth, kOut);
  Print(output->stdout_fd(), "out\n");
  Print(output->stderr_fd(), "err\n");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Shown(0), "[default0]:out\n");
  EXPECT_EQ(Shown(1), "");
  EXPECT_EQ(Contents(files_.stderr_log), "err\n");
}

TEST_F(WorkerOutputTest, WithoutFilesEverythingGoesToTheConsole) {
  files_ = {};
  const auto output = Open(kBoth, kOut);
  Print(output->stdout_fd(), "out\n");
  Print(output->stderr_fd(), "err\n");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Shown(0), "[default0]:out\n");
  EXPECT_EQ(Shown(1), "err\n");
  EXPECT_EQ(output->StderrTail(), "err\n");
  EXPECT_EQ(Open(kOut, kNone)->stdout_fd(), console_pipes_[0].writer.get());
  EXPECT_THAT(warnings_, IsEmpty()) << "an empty path must not cause a warning";
}

TEST_F(WorkerOutputTest, PipesHaveTheRequestedSize) {
  WorkerOutput::Plan plan = Plan(kNone, kOut);
  plan.pipe_bytes = 128 << 10;
  EXPECT_EQ(fcntl(Open(plan).stdout_fd(), F_GETPIPE_SZ), 128 << 10);
}

TEST_F(WorkerOutputTest, HiddenOutputGoesOnlyToItsFile) {
  WorkerOutput::Plan plan = Plan(kErr, kOut);
  plan.shown = false;
  WorkerOutput output = Open(plan);
  Print(output.stdout_fd(), "out\n");
  Print(output.stderr_fd(), "err\n");
  EXPECT_TRUE(Drain(output));
  EXPECT_EQ(Contents(files_.stdout_log), "out\n");
  EXPECT_EQ(Contents(files_.stderr_log), "err\n");
  EXPECT_EQ(output.StderrTail(), "err\n");
  EXPECT_EQ(Shown(0) + Shown(1), "");
}

TEST_F(WorkerOutputTest, HiddenOutputWithoutFilesKeepsTheTailOfStderr) {
  for (const bool with_files : {true, false}) {
    if (!with_files) files_ = {};
    WorkerOutput::Plan plan = Plan(kNone, with_files ? kNone : kBoth);
    plan.shown = false;
    WorkerOutput output = Open(plan);
    // This is more than a pipe holds, so a worker would block if stdout were an unread pipe.
    for (int i = 0; i < 100; ++i) Print(output.stdout_fd(), std::string(10'000, 'x'));
    Print(output.stderr_fd(), "last words");
    EXPECT_TRUE(Drain(output));
    EXPECT_EQ(output.StderrTail(), "last words");
    EXPECT_EQ(Shown(0) + Shown(1), "");
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/stdout.log"));
  }
}

TEST_F(WorkerOutputTest, HiddenOutputStaysHiddenIfItsFileCannotBeOpened) {
  files_ = {.stdout_log = "/no/such/dir/out", .stderr_log = "/no/such/dir/err"};
  WorkerOutput::Plan plan = Plan(kBoth, kNone);
  plan.shown = false;
  WorkerOutput output = Open(plan);
  Print(output.stdout_fd(), "out\n");
  Print(output.stderr_fd(), "err\n");
  EXPECT_TRUE(Drain(output));
  EXPECT_EQ(Shown(0) + Shown(1), "");
  EXPECT_EQ(output.StderrTail(), "err\n");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("/no/such/dir/out"), HasSubstr("/no/such/dir/err")));
}

TEST_F(WorkerOutputTest, WarnsAndUsesTheConsoleIfAFileCannotBeOpened) {
  files_ = {.stdout_log = "/no/such/dir/out", .stderr_log = "/no/such/dir/err"};
  const auto output = Open(kErr, kOut);
  Print(output->stdout_fd(), "out\n");
  Print(output->stderr_fd(), "err\n");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Shown(0), "[default0]:out\n");
  EXPECT_EQ(Shown(1), "err\n");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("/no/such/dir/out"), HasSubstr("/no/such/dir/err")));
}

TEST_F(WorkerOutputTest, WarnsOnceAboutAFullDiskAndShowsEverything) {
  files_.stdout_log = "/dev/full";
  const auto output = Open(kNone, kOut);
  for (int i = 0; i < 3; ++i) {
    Print(output->stdout_fd(), "line\n");
    io_.restart();
    io_.run_one_for(kPatience);
  }
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Shown(0), "[default0]:line\n[default0]:line\n[default0]:line\n");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("/dev/full")));
}

TEST_F(WorkerOutputTest, WarnsOnceAboutAClosedConsoleAndDoesNotBlock) {
  console_pipes_[0].reader.Reset();
  const auto output = Open(kNone, kOut);
  const UniqueFd worker = TakeStdout(*output);
  // The test writes far more than a pipe holds, so the agent must read the pipe.
  const std::string chunk = std::string(4095, 'x') + "\n";
  size_t written = 0;
  ASSERT_TRUE(RunUntil([&] {
    for (ssize_t n; written < 1'000'000 && (n = write(worker.get(), chunk.data(), chunk.size())) > 0;)
      written += n;
    return written >= 1'000'000;
  }));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("stdout")));
}

TEST_F(WorkerOutputTest, DrainTimesOutIfThePipeIsHeldOpen) {
  const auto output = Open(kNone, kOut);
  const UniqueFd held_open(fcntl(output->stdout_fd(), F_DUPFD_CLOEXEC, 3));
  Print(held_open.get(), "last line\nand a half");
  EXPECT_TRUE(Drain(*output, milliseconds(20)));
  EXPECT_EQ(Shown(0), "[default0]:last line\n[default0]:and a half\n");
  EXPECT_EQ(write(held_open.get(), "x", 1), -1) << "the read end of the pipe must be closed";
}

TEST_F(WorkerOutputTest, FlushTimesOutIfTheConsoleIsBlocked) {
  const auto output = Open(kNone, kErr);
  const std::string line(60'000, 'x');
  for (int i = 0; i < 4; ++i) {
    Print(output->stderr_fd(), line + "\n");
    io_.restart();
    io_.run_one_for(kPatience);
  }
  EXPECT_TRUE(Drain(*output));
  EXPECT_TRUE(Flush(milliseconds(20)));
}

TEST_F(WorkerOutputTest, TailHasOnlyStderrWhileTheConsoleIsBehind) {
  const auto output = Open(kNone, kErr);
  UniqueFd worker(fcntl(output->stderr_fd(), F_DUPFD_CLOEXEC, 3));
  fcntl(worker.get(), F_SETFL, O_NONBLOCK);
  output->CloseChildEnds();
  const std::string line = std::string(999, 'x') + "\n";
  for (int left = 4 << 10; left > 0; RunAll()) {
    while (left > 0 && write(worker.get(), line.data(), line.size()) > 0) --left;
  }
  EXPECT_FALSE(output->tail_has_stdout());
  worker.Reset();
  EXPECT_TRUE(Drain(*output));
  EXPECT_FALSE(output->tail_has_stdout());
}

// Runs a real worker repeatedly. No output that the worker prints before it exits may be lost.
TEST_F(WorkerOutputTest, LosesNothingWhenAWorkerExits) {
  std::map<uint64_t, ExitInfo> ended;
  WardenClient client(io_, StartWarden(),
                      {.started = [](auto, auto) {},
                       .ended = [&](auto id, const ExitInfo& exit, const auto&) { ended.emplace(id, exit); },
                       .warden_lost = [](const auto&) {}});
  for (uint64_t id = 1; id <= 20; ++id) {
    const auto output = Open(kNone, kBoth);
    client.Spawn(
        id, {.argv = {"/bin/sh", "-c",
                      "i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done; printf end >&2; exit 3"},
             .env = {{"PATH", "/usr/bin:/bin"}},
             .stdout_fd = output->stdout_fd(),
             .stderr_fd = output->stderr_fd()});
    output->CloseChildEnds();
    ASSERT_TRUE(RunUntil([&] { return ended.count(id) == 1; }));
    ASSERT_TRUE(Drain(*output));
    std::string want;
    for (int i = 0; i < 300; ++i) absl::StrAppend(&want, "line ", i, "\n");
    EXPECT_EQ(Contents(files_.stdout_log), want);
    EXPECT_EQ(output->StderrTail(), "end");
    const std::string shown = Shown(0);
    EXPECT_EQ(shown.size(), want.size() + 300 * std::string("[default0]:").size());
    EXPECT_EQ(Shown(1), "[default0]:end\n");
  }
}

// The console also shows an incomplete last line.
TEST_F(WorkerOutputTest, LosesNothingWhenAWorkerIsKilled) {
  std::map<uint64_t, ExitInfo> ended;
  WardenClient client(io_, StartWarden(),
                      {.started = [](auto, auto) {},
                       .ended = [&](auto id, const ExitInfo& exit, const auto&) { ended.emplace(id, exit); },
                       .warden_lost = [](const auto&) {}});
  const auto output = Open(kNone, kOut);
  client.Spawn(1, {.argv = {"/bin/sh", "-c", "echo whole; printf 'cut off'; kill -KILL $$"},
                   .env = {{"PATH", "/usr/bin:/bin"}},
                   .stdout_fd = output->stdout_fd(),
                   .stderr_fd = output->stderr_fd()});
  output->CloseChildEnds();
  ASSERT_TRUE(RunUntil([&] { return ended.count(1) == 1; }));
  EXPECT_EQ(ended.at(1), ExitInfo(Signaled{.signo = SIGKILL, .core_dumped = false}));
  ASSERT_TRUE(Drain(*output));
  EXPECT_EQ(Contents(files_.stdout_log), "whole\ncut off");
  EXPECT_EQ(Shown(0), "[default0]:whole\n[default0]:cut off\n");
}

}  // namespace
}  // namespace ddprun
