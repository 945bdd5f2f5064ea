// Tests the output of workers when the launcher's stdout and stderr are one file, one pipe, separate pipes,
// or a terminal.
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/read_all.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

constexpr int kLines = 300;

std::unique_ptr<Process> StartInShell(const std::string& redirection, const Args& options,
                                      const std::string& script) {
  return std::make_unique<Process>(Args{"/bin/sh", "-c", "exec \"$@\" " + redirection, "sh", DdprunPath()} +
                                   options + Args{"--no-python", "/bin/sh", "-c", script});
}

// Returns the lines that each rank printed, in order. Ignores lines that do not begin with a rank from 0 to 3
// and a blank.
std::map<char, std::vector<std::string>> ByRank(const std::string& text) {
  std::map<char, std::vector<std::string>> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.size() > 2 && line[0] >= '0' && line[0] <= '3' && line[1] == ' ') {
      lines[line[0]].push_back(line.substr(2));
    }
  }
  return lines;
}

TEST(ConsoleTest, BothStreamsInOneFileKeepTheOrderOfTheWrites) {
  const std::string log = MakeTestDirectory() + "/log";
  const auto agent = StartInShell(
      "> " + log + " 2>&1", {"--nproc-per-node=4"},
      "i=0; while [ $i -lt " + std::to_string(kLines) +
          " ]; do i=$((i+1)); echo \"$LOCAL_RANK out $i\"; echo \"$LOCAL_RANK err $i\" >&2; done");
  EXPECT_EQ(agent->Wait(), ProcessEnd{.code = 0});
  std::vector<std::string> want;
  for (int i = 1; i <= kLines; ++i) {
    for (const char* const stream : {"out ", "err "}) want.push_back(stream + std::to_string(i));
  }
  const auto lines = ByRank(ReadAll(log));
  EXPECT_EQ(lines.size(), 4u);
  for (const auto& [rank, printed] : lines) EXPECT_EQ(printed, want) << rank;
}

// Programs write to a pipe or a file in blocks, which may end in the middle of a line.
TEST(ConsoleTest, LinesOfSeveralWorkersAreNotMixed) {
  const auto agent =
      StartInShell("", {"--nproc-per-node=4"},
                   "i=0; while [ $i -lt " + std::to_string(kLines) +
                       " ]; do i=$((i+1)); printf \"$LOCAL_RANK \"; printf \"out $i\\n\"; done");
  EXPECT_EQ(agent->Wait(), ProcessEnd{.code = 0});
  std::vector<std::string> want;
  for (int i = 1; i <= kLines; ++i) want.push_back("out " + std::to_string(i));
  const auto lines = ByRank(agent->out());
  EXPECT_EQ(lines.size(), 4u);
  for (const auto& [rank, printed] : lines) EXPECT_EQ(printed, want) << rank;
}

TEST(ConsoleTest, TheReportHasTheLastLinesOfBothStreams) {
  const auto agent = StartInShell("2>&1", {}, "echo the last words; echo of both >&2; exit 3");
  EXPECT_EQ(agent->Wait(), ProcessEnd{.code = 1});
  EXPECT_THAT(agent->out(), HasSubstr("the last words\nof both\n"));
  EXPECT_THAT(agent->out(), HasSubstr("  last lines of its output:\n    | the last words\n    | of both\n"));
}

TEST(ConsoleTest, WorkersInheritATerminal) {
  const auto agent =
      StartAgent({"--nproc-per-node=2", "--no-python"},
                 {"/bin/sh", "-c", "test -t 1 && test -t 2 && echo both are terminals"}, Stdio::kTerminal);
  EXPECT_EQ(agent->AwaitOut("both are terminals", 2).size(), 2u) << agent->out();
  EXPECT_EQ(agent->Wait(), ProcessEnd{.code = 0});
}

}  // namespace
}  // namespace ddprun
