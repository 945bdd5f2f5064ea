// One of three workers computes longer than the others, which wait for it in each step.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

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
  EXPECT_THAT(
      told[0],
      ContainsRegex(
          "rank 1 on [^ ]+ is slower than the others: it needs [67][0-9].* ms of its own for each step "
          "of [^ ]+ ms; the median of all ranks is [345]"));
  const std::string ddpctl = MakeTestDirectory() + "/ddpctl";  // the name selects the program
  std::filesystem::create_symlink(DdprunPath(), ddpctl);
  Process status(Args{ddpctl, "status"} + endpoint);
  ASSERT_EQ(status.Wait(), ProcessEnd{.code = 0}) << status.err();
  EXPECT_THAT(status.out(), HasSubstr("  RANK NODE "));
  const auto row = [](const std::string& rank, const std::string& shares) {
    return ContainsRegex("\n  " + rank + " +[^ ]+ +[^ ]+ ms +[^ ]+ ms +" + shares);
  };
  EXPECT_THAT(status.out(), row("0", "[0-9]+ % +[0-9]+ % +[2-6][0-9] %\n"));
  EXPECT_THAT(status.out(), row("1", "[0-9]+ % +[6-9][0-9] % +[0-9]+ % +slower than the others\n"));
  EXPECT_THAT(status.out(), row("2", "[0-9]+ % +[0-9]+ % +[2-6][0-9] %\n"));
  // Three more comparisons.
  EXPECT_THAT(agent->AwaitErr(" slower than the others", 1, seconds(30)), SizeIs(0)) << "it was told before";
  EXPECT_THAT(agent->err(), Not(HasSubstr("no progress")));
  agent->Signal(SIGTERM);
  EXPECT_TRUE(agent->Wait(seconds(30)).has_value());
}

}  // namespace
}  // namespace ddprun
