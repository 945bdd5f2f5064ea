#include "launcher/stacks/tool_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/stacks/testing/worker.h"

namespace ddprun {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

ToolCommand Shell(const std::string& script) {
  return {.file = "/bin/sh", .argv = {"sh", "-c", script}, .env = {"PATH=/usr/bin:/bin", "A=b"}};
}

void AwaitTool(ToolProcess& tool) {
  while (!tool.Poll()) poll(nullptr, 0, 1);
}

// The number that the tool has written.
pid_t AwaitNumber(ToolProcess& tool) {
  while (tool.output().find('\n') == std::string::npos && !tool.Poll()) poll(nullptr, 0, 1);
  return std::atoi(tool.output().c_str());
}

TEST(ToolProcessTest, OutputAndStatus) {
  ToolProcess tool(Shell("echo out; echo err >&2; pwd; env; exit 7"), 1000);
  AwaitTool(tool);
  EXPECT_THAT(tool.output(), HasSubstr("out\nerr\n/\n"));
  EXPECT_THAT(tool.output(), HasSubstr("A=b"));
  EXPECT_THAT(tool.output(), Not(HasSubstr("TEST_TMPDIR")));
  EXPECT_TRUE(WIFEXITED(tool.status()));
  EXPECT_EQ(WEXITSTATUS(tool.status()), 7);
  EXPECT_FALSE(tool.too_much_output());
}

TEST(ToolProcessTest, InheritsNothing) {
  const int fd = dup2(2, 77);
  struct sigaction ignore = {}, before;
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGUSR1, &ignore, &before);
  sigset_t blocked, mask;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &blocked, &mask);
  ToolProcess tool({.file = "/bin/sh",
                    .argv = {"sh", "-c",
                             "ls -l /proc/self/fd; cat /proc/self/status; cat /proc/self/oom_score_adj; "
                             "readlink /proc/self/fd/0"},
                    .env = {}},
                   100'000);
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  sigaction(SIGUSR1, &before, nullptr);
  close(fd);
  AwaitTool(tool);
  EXPECT_THAT(tool.output(), HasSubstr(" 2 -> "));
  EXPECT_THAT(tool.output(), Not(HasSubstr(" 77 -> ")));
  EXPECT_THAT(tool.output(), ContainsRegex("SigBlk:\t0000000000000000"));
  EXPECT_THAT(tool.output(), ContainsRegex("SigIgn:\t[0-9a-f]*0000000\n"));
  EXPECT_THAT(tool.output(), HasSubstr("\n1000\n/dev/null\n"));
}

TEST(ToolProcessTest, TooMuchOutputKills) {
  ToolProcess tool(Shell("exec yes"), 10'000'000);
  AwaitTool(tool);
  EXPECT_TRUE(tool.too_much_output());
  EXPECT_EQ(tool.output().size(), 10'000'000);
  EXPECT_TRUE(WIFSIGNALED(tool.status()));
}

TEST(ToolProcessTest, KillReachesTheGroupAndNeedsNoCooperation) {
  ToolProcess tool(Shell("trap '' TERM INT HUP; sleep 1000 & echo $!; wait; sleep 1000"), 1000);
  const pid_t child = AwaitNumber(tool);
  ASSERT_GT(child, 0);
  tool.Kill();
  AwaitTool(tool);
  EXPECT_TRUE(WIFSIGNALED(tool.status()));
  EXPECT_TRUE(AwaitEnd(child));
  EXPECT_EQ(waitpid(tool.pid(), nullptr, WNOHANG), -1);  // reaped
}

TEST(ToolProcessTest, WhatAToolHasStartedEndsWithIt) {
  ToolProcess tool(Shell("sleep 1000 & echo $!"), 1000);
  const pid_t child = AwaitNumber(tool);
  AwaitTool(tool);
  EXPECT_EQ(WEXITSTATUS(tool.status()), 0);
  EXPECT_TRUE(AwaitEnd(child));
}

TEST(ToolProcessTest, DestructorKills) {
  pid_t pid = 0;
  {
    const ToolProcess tool(Shell("sleep 1000"), 1000);
    pid = tool.pid();
  }
  EXPECT_TRUE(AwaitEnd(pid));
  ToolProcess next(Shell("exit 0"), 1000);
  AwaitTool(next);
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), -1);  // reaped
}

TEST(ToolProcessTest, EndsWithTheThreadThatHasStartedIt) {
  std::unique_ptr<ToolProcess> tool;
  std::thread([&] {
    tool = std::make_unique<ToolProcess>(Shell("echo $$; sleep 1000"), 1000);
    EXPECT_GT(AwaitNumber(*tool), 0);
  }).join();
  AwaitTool(*tool);
  EXPECT_TRUE(WIFSIGNALED(tool->status()));
}

TEST(ToolProcessTest, EndsWithTheProcessThatHasStartedIt) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    std::thread([&] {
      ToolProcess tool(Shell("echo $$; sleep 1000"), 1000);
      const pid_t pid = AwaitNumber(tool);
      if (write(pipe_ends[1], &pid, sizeof pid) != sizeof pid) _exit(1);
      AwaitTool(tool);
    }).join();
    _exit(0);
  }
  pid_t tool = 0;
  ASSERT_EQ(read(pipe_ends[0], &tool, sizeof tool), sizeof tool);
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  EXPECT_TRUE(AwaitEnd(tool));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(ToolProcessTest, AProgramThatDoesNotExist) {
  ToolProcess tool({.file = "/nonexistent", .argv = {"nonexistent"}, .env = {}}, 1000);
  AwaitTool(tool);
  EXPECT_EQ(WEXITSTATUS(tool.status()), 127);
  EXPECT_EQ(tool.output(), "");
}

}  // namespace
}  // namespace ddprun
