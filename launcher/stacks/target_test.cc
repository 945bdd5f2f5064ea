#include "launcher/stacks/target.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(TargetTest, WhatWouldPermitATool) {
  EXPECT_THAT(PermissionRemedy(std::nullopt), AllOf(HasSubstr("SYS_PTRACE"), Not(HasSubstr("yama"))));
  EXPECT_THAT(PermissionRemedy(0), Not(HasSubstr("yama")));
  EXPECT_THAT(PermissionRemedy(1), HasSubstr("/proc/sys/kernel/yama/ptrace_scope is 1: set it to 0"));
  EXPECT_THAT(PermissionRemedy(2), HasSubstr("is 2"));
  EXPECT_THAT(PermissionRemedy(3), HasSubstr("until the next boot"));
}

TEST(TargetTest, RelativeFoldersAreNotSearched) {
  EXPECT_EQ(FindTool("sh", "/bin"), "/bin/sh");
  EXPECT_EQ(FindTool("sh", "::bin:.:/nonexistent"), "");
  EXPECT_EQ(FindTool("etc", "/"), "");  // a folder
}

TEST(TargetTest, GdbReadsSymbolsBeforeItAttaches) {
  Target a, b, c;
  a.process.pid = 12;
  a.exe = b.exe = "/bin/x";
  a.libraries = b.libraries = {"/usr/lib/libbig.so"};
  b.process.pid = 13;
  c.process.pid = 14;
  c.exe = "/bin/y";
  c.libraries = {"/usr/lib/libother.so"};
  const ToolCommand command =
      GdbCommand("/usr/bin/gdb", {{.target = &a, .threads = 3}, {.target = &b}, {.target = &c}});
  const auto first =
      std::find(command.argv.begin(), command.argv.end(), "add-inferior -exec /usr/lib/libbig.so");
  std::vector<std::string> commands;
  for (auto it = first; it < command.argv.end(); it += 2) commands.push_back(*it);
  EXPECT_THAT(
      commands,
      ElementsAre("add-inferior -exec /usr/lib/libbig.so", "add-inferior -exec /usr/lib/libother.so",
                  "echo ddprun attaches 12\\n", "attach 12", "thread apply 1.1 backtrace 128",
                  "thread apply 1.1-3 backtrace 128", "detach",                                           //
                  "echo ddprun attaches 13\\n", "attach 13", "thread apply 1.1 backtrace 128", "detach",  //
                  "file", "echo ddprun attaches 14\\n", "attach 14", "thread apply 1.1 backtrace 128",
                  "detach"));
}

TEST(TargetTest, TheOutputOfGdbAboutAProcess) {
  const std::string output = "x\nddprun attaches 12\na\nb\nddprun attaches 1\nc\n";
  EXPECT_EQ(GdbSection(output, 12), "a\nb\n");
  EXPECT_EQ(GdbSection(output, 1), "c\n");
  EXPECT_EQ(GdbSection(output, 2), std::nullopt);
}

}  // namespace
}  // namespace ddprun
