// A fixture for tests of a worker's output. The test acts both as the worker and as the console's reader.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "gtest/gtest.h"
#include "launcher/config/stream_choice.h"
#include "launcher/logs/console.h"
#include "launcher/logs/disk_thread.h"
#include "launcher/logs/log_file.h"
#include "launcher/logs/log_layout.h"
#include "launcher/logs/worker_output.h"
#include "os/descriptor.h"

namespace ddprun {

inline constexpr seconds kPatience{20};
inline constexpr Streams kNone{};
inline constexpr Streams kOut{.out = true, .err = false};
inline constexpr Streams kErr{.out = false, .err = true};
inline constexpr Streams kBoth{.out = true, .err = true};

inline std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// The agent's console consists of two pipes that the test reads.
class OutputFixture : public testing::Test {
 protected:
  OutputFixture() {
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
    files_ = {.stdout_log = dir_ + "/stdout.log", .stderr_log = dir_ + "/stderr.log"};
    OpenConsole(console_pipes_[0].writer.get(), console_pipes_[1].writer.get());
  }
  void OpenConsole(int out, int err) {
    console_.emplace(
        io_, [this](const absl::Status& s) { warnings_.emplace_back(s.message()); }, out, err);
  }
  WorkerOutput::Plan Plan(Streams redirects, Streams tee) const {
    return {.redirects = redirects,
            .tee = tee,
            .files = files_,
            .prefix = "[default0]:",
            .pipe_bytes = 256 << 10};
  }
  std::unique_ptr<WorkerOutput> Open(Streams redirects, Streams tee) {
    const WorkerOutput::Plan plan = Plan(redirects, tee);
    return std::make_unique<WorkerOutput>(*console_, disk_, plan, WorkerOutput::OpenFiles(plan));
  }
  WorkerOutput Open(const WorkerOutput::Plan& plan) {
    return WorkerOutput(*console_, disk_, plan, WorkerOutput::OpenFiles(plan));
  }
  std::shared_ptr<FilteredLog> OpenFiltered(const std::string& path, std::vector<std::string> filters) {
    return std::make_shared<FilteredLog>(
        std::make_unique<QueuedLog>(&disk_, *LogFile::Open(path, 0),
                                    [](const absl::Status& s) { ADD_FAILURE() << s; }),
        std::move(filters));
  }
  // Returns the worker's stdout, which is non-blocking. The stream ends when the test closes this descriptor.
  static UniqueFd TakeStdout(WorkerOutput& output) {
    UniqueFd worker(fcntl(output.stdout_fd(), F_DUPFD_CLOEXEC, 3));
    fcntl(worker.get(), F_SETFL, O_NONBLOCK);
    output.CloseChildEnds();
    return worker;
  }

  bool RunUntil(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      io_.restart();
      io_.run_one_until(deadline);
    }
    return done();
  }
  // Runs all handlers and disk jobs that can run without further input and without a reader.
  void RunAll() {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    io_.restart();
    while (io_.poll_one() > 0 || (!disk_.idle() && std::chrono::steady_clock::now() < deadline))
      io_.restart();
  }
  bool Drain(WorkerOutput& output, Duration limit = kPatience) {
    const auto drained = std::make_shared<bool>(false);  // The callback may run after this function returns.
    output.Drain(limit, [drained] { *drained = true; });
    return RunUntil([&] { return *drained; });
  }
  // Drains `output`. Meanwhile, reads the console's stdout and appends it to `shown`.
  bool DrainReading(WorkerOutput& output, std::string& shown) {
    const auto drained = std::make_shared<bool>(false);
    output.Drain(kPatience, [drained] { *drained = true; });
    return RunUntil([&] {
      shown += Shown(0);
      return *drained;
    });
  }
  bool Flush(Duration limit = kPatience) {
    const auto flushed = std::make_shared<bool>(false);
    console_->Flush(limit, [flushed] { *flushed = true; });
    return RunUntil([&] { return *flushed; });
  }
  // Returns the console's output since the last call. `stream` is 0 for stdout and 1 for stderr.
  std::string Shown(int stream) {
    std::string text;
    char buffer[65536];
    ssize_t n;
    while ((n = read(console_pipes_[stream].reader.get(), buffer, sizeof buffer)) > 0) text.append(buffer, n);
    return text;
  }
  // Flushes the console and returns its stdout.
  std::string ShownToTheEnd() {
    std::string text;
    const auto flushed = std::make_shared<bool>(false);
    console_->Flush(kPatience, [flushed] { *flushed = true; });
    EXPECT_TRUE(RunUntil([&] {
      text += Shown(0);
      return *flushed;
    }));
    return text + Shown(0);
  }
  // Writes `text` in one call, like a worker.
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
  DiskThread disk_{io_};
  std::optional<Console> console_;
};

}  // namespace ddprun
