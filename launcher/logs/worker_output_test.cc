#include "launcher/logs/worker_output.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/process_client.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr seconds kPatience{20};
constexpr Streams kNone{};
constexpr Streams kOut{.out = true, .err = false};
constexpr Streams kErr{.out = false, .err = true};
constexpr Streams kBoth{.out = true, .err = true};

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The agent's console is two pipes here, read by the test.
class WorkerOutputTest : public testing::Test {
 protected:
  WorkerOutputTest() {
    signal(SIGPIPE, SIG_IGN);
    for (auto& pipe : console_pipes_) {
      int ends[2];
      EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
      fcntl(ends[0], F_SETFL, O_NONBLOCK);
      pipe.reader.Reset(ends[0]);
      pipe.writer.Reset(ends[1]);
    }
    dir_ = absl::StrCat(testing::TempDir(), "/XXXXXX");
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
    files_ = {.stdout_log = dir_ + "/stdout.log", .stderr_log = dir_ + "/stderr.log", .error_json = ""};
    OpenConsole(console_pipes_[0].writer.get(), console_pipes_[1].writer.get());
  }
  void OpenConsole(int out, int err) {
    console_.emplace(
        io_, [this](const absl::Status& s) { warnings_.emplace_back(s.message()); }, out, err);
  }
  std::unique_ptr<WorkerOutput> Open(Streams redirects, Streams tee) {
    return std::make_unique<WorkerOutput>(
        *console_,
        WorkerOutput::Plan{.redirects = redirects, .tee = tee, .files = files_, .prefix = "[default0]:"});
  }
  bool RunUntil(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      io_.restart();
      io_.run_one_until(deadline);
    }
    return done();
  }
  bool Drain(WorkerOutput& output, Duration limit = kPatience) {
    bool drained = false;
    output.Drain(limit, [&] { drained = true; });
    return RunUntil([&] { return drained; });
  }
  bool Flush(Duration limit = kPatience) {
    bool flushed = false;
    console_->Flush(limit, [&] { flushed = true; });
    return RunUntil([&] { return flushed; });
  }
  // What has come out on the console since the last call. 0: stdout, 1: stderr.
  std::string Shown(int stream) {
    std::string text;
    char buffer[65536];
    ssize_t n;
    while ((n = read(console_pipes_[stream].reader.get(), buffer, sizeof buffer)) > 0) text.append(buffer, n);
    return text;
  }
  // As a worker would.
  static void Print(int fd, absl::string_view text) {
    ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  struct Pipe {
    UniqueFd reader, writer;
  };
  Pipe console_pipes_[2];
  std::string dir_;
  WorkerFiles files_;
  std::vector<std::string> warnings_;
  boost::asio::io_context io_;
  std::optional<Console> console_;
};

TEST_F(WorkerOutputTest, UntouchedStdoutIsTheAgentsOwn) {
  const auto output = Open(kNone, kNone);
  EXPECT_EQ(output->stdout_fd(), console_pipes_[0].writer.get());
  EXPECT_TRUE(Drain(*output));
}

TEST_F(WorkerOutputTest, StderrThatIsNoTerminalComesThroughUnchangedAndLeavesATail) {
  const auto output = Open(kNone, kNone);
  EXPECT_NE(output->stderr_fd(), console_pipes_[1].writer.get());
  Print(output->stderr_fd(), "50%\r100%\nlast words");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Shown(1), "50%\r100%\nlast words");
  EXPECT_EQ(output->StderrTail(), "50%\r100%\nlast words");
}

TEST_F(WorkerOutputTest, StderrThatIsATerminalIsTheAgentsOwnAndLeavesNoTail) {
  const UniqueFd terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(terminal);
  ASSERT_EQ(isatty(terminal.get()), 1);
  OpenConsole(console_pipes_[0].writer.get(), terminal.get());
  const auto output = Open(kNone, kNone);
  EXPECT_EQ(output->stderr_fd(), terminal.get());
  EXPECT_EQ(output->StderrTail(), std::nullopt);
}

TEST_F(WorkerOutputTest, RedirectedStreamsGoToFilesAlone) {
  const auto output = Open(kBoth, kNone);
  Print(output->stdout_fd(), "out\n");
  Print(output->stderr_fd(), "err\n");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Contents(files_.stdout_log), "out\n");
  EXPECT_EQ(Contents(files_.stderr_log), "err\n");
  EXPECT_EQ(output->StderrTail(), "err\n");
  EXPECT_EQ(Shown(0) + Shown(1), "");
}

TEST_F(WorkerOutputTest, TeeWritesFilesAsTheyAreAndTheConsoleWithAPrefix) {
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

TEST_F(WorkerOutputTest, TeeWinsOverRedirectAndEachStreamIsItsOwn) {
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
  EXPECT_THAT(warnings_, IsEmpty()) << "whoever gave no names knows why";
}

TEST_F(WorkerOutputTest, WithLogsOffRedirectedOutputIsDroppedAndTeeIsShown) {
  files_ = {.stdout_log = "/dev/null", .stderr_log = "/dev/null", .error_json = ""};
  const auto output = Open(kErr, kOut);
  Print(output->stdout_fd(), "out\n");
  Print(output->stderr_fd(), "err\n");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Shown(0), "[default0]:out\n");
  EXPECT_EQ(Shown(1), "");
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(WorkerOutputTest, AFileThatCannotBeOpenedIsToldAndTheConsoleGetsIt) {
  files_ = {.stdout_log = "/no/such/dir/out", .stderr_log = "/no/such/dir/err", .error_json = ""};
  const auto output = Open(kErr, kOut);
  Print(output->stdout_fd(), "out\n");
  Print(output->stderr_fd(), "err\n");
  EXPECT_TRUE(Drain(*output));
  EXPECT_EQ(Shown(0), "[default0]:out\n");
  EXPECT_EQ(Shown(1), "err\n");
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("/no/such/dir/out"), HasSubstr("/no/such/dir/err")));
}

TEST_F(WorkerOutputTest, AFullDiskIsToldOnceAndTheConsoleGoesOn) {
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

TEST_F(WorkerOutputTest, AConsoleThatWentAwayIsToldOnceAndStopsNobody) {
  console_pipes_[0].reader.Reset();
  const auto output = Open(kNone, kOut);
  const UniqueFd worker(fcntl(output->stdout_fd(), F_DUPFD_CLOEXEC, 3));
  fcntl(worker.get(), F_SETFL, O_NONBLOCK);
  output->CloseChildEnds();
  // Far more than a pipe holds: somebody takes it.
  const std::string chunk(4095, 'x');
  size_t written = 0;
  ASSERT_TRUE(RunUntil([&] {
    for (ssize_t n; written < 1'000'000 && (n = write(worker.get(), chunk.data(), chunk.size())) > 0;)
      written += n;
    return written >= 1'000'000;
  }));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("stdout")));
}

TEST_F(WorkerOutputTest, ASlowConsoleMakesTheWorkerWaitAndLosesNothing) {
  const auto output = Open(kNone, kOut);
  UniqueFd worker(fcntl(output->stdout_fd(), F_DUPFD_CLOEXEC, 3));
  fcntl(worker.get(), F_SETFL, O_NONBLOCK);
  output->CloseChildEnds();
  std::string sent;
  const auto write_lines = [&] {
    const std::string line(4095, static_cast<char>('a' + sent.size() % 26));
    while (write(worker.get(), (line + "\n").data(), 4096) == 4096) sent += line + "\n";
  };
  // Nobody reads the console: sooner or later the worker's pipe stays full.
  size_t before;
  do {
    before = sent.size();
    write_lines();
    io_.restart();
    while (io_.poll_one() > 0) {
    }
  } while (sent.size() > before);
  EXPECT_LT(sent.size(), 4u << 20);
  EXPECT_EQ(write(worker.get(), "x", 1), -1);
  std::string shown;
  bool drained = false;
  worker.Reset();
  output->Drain(kPatience, [&] { drained = true; });
  ASSERT_TRUE(RunUntil([&] {
    shown += Shown(0);
    return drained;
  }));
  bool flushed = false;
  console_->Flush(kPatience, [&] { flushed = true; });
  ASSERT_TRUE(RunUntil([&] {
    shown += Shown(0);
    return flushed;
  }));
  shown += Shown(0);
  EXPECT_EQ(Contents(files_.stdout_log), sent);
  EXPECT_EQ(shown.size(), sent.size() + sent.size() / 4096 * std::string("[default0]:").size());
}

TEST_F(WorkerOutputTest, TheDrainOfAHeldPipeEndsAtItsLimitWithWhatIsThere) {
  const auto output = Open(kNone, kOut);
  const UniqueFd held_by_somebody(fcntl(output->stdout_fd(), F_DUPFD_CLOEXEC, 3));
  Print(held_by_somebody.get(), "last line\nand a half");
  EXPECT_TRUE(Drain(*output, milliseconds(20)));
  EXPECT_EQ(Shown(0), "[default0]:last line\n[default0]:and a half\n");
  EXPECT_EQ(write(held_by_somebody.get(), "x", 1), -1) << "nobody reads any more";
}

TEST_F(WorkerOutputTest, TheFlushOfABlockedConsoleEndsAtItsLimit) {
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

// A real worker: nothing it printed before its end is missing, every time.
TEST_F(WorkerOutputTest, NoByteOfAWorkerIsLostAtItsEnd) {
  std::map<uint64_t, ExitInfo> ended;
  ProcessClient client(io_, StartWarden(),
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

}  // namespace
}  // namespace ddprun
