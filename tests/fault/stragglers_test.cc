// One of three workers computes longer than the others, which wait for it in each step.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"

namespace ddprun {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

// A line of the table of step times; shares in percent.
struct Row {
  int rank = -1, data = 0, compute = 0, communication = 0;
  bool slower = false;
};

std::vector<Row> StepTableOf(const std::string& status) {
  static const std::regex line(
      R"( +(\d+) +\S+ +\S+ ms +\S+ ms +(\d+) % +(\d+) % +(\d+) %(  slower than the others)?)");
  std::vector<Row> rows;
  std::istringstream lines(status);
  std::smatch match;
  for (std::string text; std::getline(lines, text);) {
    if (!std::regex_match(text, match, line)) continue;
    rows.push_back({std::stoi(match[1]), std::stoi(match[2]), std::stoi(match[3]), std::stoi(match[4]),
                    match[5].matched});
  }
  return rows;
}

// Users are told once which rank it is, and ddpctl shows where the time of each rank goes.
TEST(StragglersTest, ASlowRankIsNamedOnce) {
  const auto agent = StartAgent({"--nnodes=1:2", "--nproc-per-node=3", "--rdzv-conf=last_call_timeout=1"},
                                {TestFile("tests/fault/testing/slow_worker"), "--slow=1"});
  const auto join = agent->AwaitErr("other nodes join with: ");
  ASSERT_THAT(join, SizeIs(1)) << agent->err();
  Args endpoint;
  for (const std::string& option : RendezvousOptions(join[0])) {
    if (option.starts_with("--rdzv-endpoint=")) endpoint.push_back(option);
  }
  // It takes six comparisons of the ranks, about one each 10 s.
  const auto told = agent->AwaitErr(" slower than the others", 1, seconds(200));
  ASSERT_THAT(told, SizeIs(1)) << agent->err();
  EXPECT_THAT(told[0],
              ContainsRegex("rank 1 on [^ ]+ is slower than the others: it needs [0-9.]+ ms of its own "
                            "for each step of [0-9.]+ ms; the median of all ranks is [0-9.]+ ms"));
  const std::string ddpctl = MakeTestDirectory() + "/ddpctl";  // the name selects the program
  std::filesystem::create_symlink(DdprunPath(), ddpctl);
  Process status(Args{ddpctl, "status"} + endpoint);
  ASSERT_EQ(status.Wait(), ProcessEnd{.code = 0}) << status.err();
  const std::vector<Row> rows = StepTableOf(status.out());
  ASSERT_THAT(rows, SizeIs(3)) << status.out();
  for (const Row& row : rows) {
    EXPECT_EQ(row.slower, row.rank == 1) << status.out();
    EXPECT_GT(row.data, 2) << status.out();
    EXPECT_NEAR(row.data + row.compute + row.communication, 100, 2) << status.out();
    // The others wait for rank 1, which waits for no other rank.
    if (row.rank == 1) continue;
    EXPECT_GT(row.communication, rows[1].communication + 5) << status.out();
  }
  // Three more comparisons.
  EXPECT_THAT(agent->AwaitErr(" slower than the others", 1, seconds(30)), SizeIs(0)) << "it was told before";
  EXPECT_THAT(agent->err(), Not(HasSubstr("no progress")));
  agent->Signal(SIGTERM);
  EXPECT_TRUE(agent->Wait(seconds(30)).has_value());
}

}  // namespace
}  // namespace ddprun
