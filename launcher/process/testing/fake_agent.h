// A fake agent with a real warden, and functions that find the processes of its workers without using the
// code under test. Each fake agent sets a mark in the environment of its workers. The functions search /proc
// for processes with this mark.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/warden_client.h"

namespace ddprun {

// Time limit for each condition that a test waits for.
inline constexpr seconds kPatience{20};

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::string> SplitNul(const std::string& text) {
  return absl::StrSplit(text, '\0', absl::SkipEmpty());
}

// Returns the live processes whose environment contains `mark`, a string of the form NAME=VALUE.
inline std::vector<pid_t> Marked(const std::string& mark) {
  std::vector<pid_t> found;
  DIR* dir = opendir("/proc");
  while (const dirent* entry = readdir(dir)) {
    const int pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    for (const std::string& var : SplitNul(ReadAll(absl::StrCat("/proc/", pid, "/environ")))) {
      if (var == mark) found.push_back(pid);
    }
  }
  closedir(dir);
  return found;
}

// Waits until at least `count` live processes with `mark` exist. Returns false if this takes longer than
// kPatience. Waiting is necessary because /proc shows no environment for a process in the middle of exec.
inline bool AwaitMarked(const std::string& mark, size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (Marked(mark).size() < count) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    sched_yield();
  }
  return true;
}

// Reads from `fd` until the text contains `what`, the stream ends, or kPatience has passed. Returns the text.
inline std::string ReadUntil(int fd, absl::string_view what) {
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (text.find(std::string(what)) == std::string::npos) {
    pollfd ready = {.fd = fd, .events = POLLIN, .revents = 0};
    const auto left = deadline - std::chrono::steady_clock::now();
    char buffer[4096];
    if (poll(&ready, 1, std::max<int>(0, ToMillis(left))) <= 0) break;
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n <= 0) break;
    text.append(buffer, n);
  }
  return text;
}

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

inline Pipe MakePipe() {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// An agent that runs in this process and has its own warden.
class FakeAgent {
 public:
  // `say` is called with one line for each call of the handlers `ended` and `fenced`.
  explicit FakeAgent(std::function<void(const std::string&)> say = {}) : say_(std::move(say)) {
    client_.emplace(io_, StartWarden(), Handlers());
  }

  WardenClient& client() { return *client_; }
  boost::asio::io_context& io() { return io_; }

  SpawnCommand Command(std::vector<std::string> argv) {
    return {.argv = std::move(argv),
            .env = {{"PATH", "/usr/bin:/bin"}, {"DDPRUN_TEST_MARK", mark_}},
            .cwd = "/",
            .stdin_fd = null_.get(),
            .stdout_fd = null_.get(),
            .stderr_fd = 2};
  }
  SpawnCommand Shell(std::string script) { return Command({"/bin/sh", "-c", std::move(script)}); }

  // Runs the io_context until `done` returns true, for at most kPatience. Returns the last result of `done`.
  bool RunUntil(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      io_.restart();
      io_.run_one_until(deadline);
    }
    return done();
  }
  ExitInfo RunToEnd(uint64_t id) {
    EXPECT_TRUE(RunUntil([&] { return ended.count(id) > 0; })) << "worker " << id << " has not ended";
    return ended.count(id) > 0 ? ended.at(id) : NeverStarted{absl::DeadlineExceededError("test")};
  }
  ExitInfo Run(const SpawnCommand& command) {
    const uint64_t id = next_id++;
    client().Spawn(id, command);
    return RunToEnd(id);
  }
  // Spawns `script`, which must print the line "ready", and waits for that line. Returns the worker's id.
  uint64_t StartAndWaitReady(const std::string& script) {
    Pipe out = MakePipe();
    SpawnCommand command = Shell(script);
    command.stdout_fd = out.writer.get();
    const uint64_t id = next_id++;
    client().Spawn(id, command);
    EXPECT_TRUE(RunUntil([&] { return started.count(id) > 0; }));
    out.writer.Reset();
    EXPECT_THAT(ReadUntil(out.reader.get(), "ready\n"), ::testing::HasSubstr("ready\n"));
    return id;
  }
  std::vector<LeftOver> KillAll(Duration limit = kPatience,
                                const std::vector<WardenClient::WorkerId>& spare = {}) {
    std::optional<std::vector<LeftOver>> answer;
    client().KillAll(
        limit, [&](const std::vector<LeftOver>& left) { answer = left; }, spare);
    EXPECT_TRUE(RunUntil([&] { return answer.has_value(); }));
    return answer.value_or(std::vector<LeftOver>(1));
  }
  void Destroy() { client_.reset(); }
  bool AwaitMarkedProcesses(size_t count) const { return AwaitMarked("DDPRUN_TEST_MARK=" + mark_, count); }
  std::vector<pid_t> MarkedProcesses() const { return Marked("DDPRUN_TEST_MARK=" + mark_); }

  std::map<uint64_t, pid_t> started;
  std::map<uint64_t, ExitInfo> ended;
  std::vector<uint64_t> order;  // ids of the workers, in the order of the calls of `ended`
  std::map<uint64_t, ResourceUse> use;
  std::map<uint64_t, LeftOver> slow;
  std::vector<absl::Status> lost;
  int times_fenced = 0;
  uint64_t next_id = 1;

 private:
  void Say(const std::string& line) const {
    if (say_) say_(line + "\n");
  }
  WardenClient::Handlers Handlers() {
    return {.started =
                [this](uint64_t id, pid_t pid) {
                  EXPECT_EQ(started.count(id) + ended.count(id), 0u);
                  started[id] = pid;
                },
            .ended =
                [this](uint64_t id, const ExitInfo& exit, const ResourceUse& used) {
                  EXPECT_EQ(ended.count(id), 0u) << "worker " << id << " ended twice";
                  ended.emplace(id, exit);
                  order.push_back(id);
                  use[id] = used;
                  Say(absl::StrCat("ended ", id, ": ", ToString(exit)));
                },
            .warden_lost = [this](const absl::Status& why) { lost.push_back(why); },
            .fenced =
                [this] {
                  ++times_fenced;
                  Say("fenced");
                },
            .slow_start =
                [this](uint64_t id, const LeftOver& process) {
                  EXPECT_EQ(started.count(id) + ended.count(id), 0u);
                  slow[id] = process;
                }};
  }

  const std::function<void(const std::string&)> say_;
  static inline int instances_ = 0;
  const std::string mark_ = absl::StrCat(getpid(), "-", ++instances_);
  const UniqueFd null_{open("/dev/null", O_RDWR | O_CLOEXEC)};
  boost::asio::io_context io_;
  std::optional<WardenClient> client_;
};

// Returns the pid of the agent's warden: the parent of a worker that this call starts.
inline pid_t WardenOf(FakeAgent& agent) {
  const uint64_t id = agent.StartAndWaitReady("echo ready; exec sleep 1000");
  const std::string stat = ReadAll(absl::StrCat("/proc/", agent.started.at(id), "/stat"));
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(stat.rfind(')')), ' ');
  return std::atoi(fields[2].c_str());
}

// A script for a worker that ignores SIGTERM. The worker starts a child and two orphans, each orphan in a new
// session. All of these processes inherit the ignored signals.
inline constexpr char kHardToKill[] =
    "trap '' TERM HUP INT\n"
    "(setsid sh -c 'trap \"\" TERM HUP; echo one; while :; do sleep 1000; done' &)\n"
    "(sh -c 'setsid sleep 1001 & echo two' &)\n"
    "sleep 1002 &\n"
    "echo ready\n"
    "while :; do sleep 1003; done";

}  // namespace ddprun
