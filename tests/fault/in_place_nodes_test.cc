// In-place recovery while nodes join, leave and end, and what a survivor holds after many rounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/fault/in_place_fixture.h"

namespace ddprun {
namespace {

std::vector<pid_t> PidsOf(const std::map<int, pid_t>& workers) {
  std::vector<pid_t> pids;
  for (const auto& [local_rank, pid] : workers) pids.push_back(pid);
  return pids;
}

class InPlaceNodesTest : public InPlaceTest {
 protected:
  // Two nodes train; then the second agent is killed, and the workers of the first one have parked. Returns these.
  std::map<int, pid_t> ParkForTooFewNodes() {
    Start({.nnodes = "2:3", .agents = 2, .workers = 2, .batch = 16});
    const std::map<int, pid_t> workers = WorkersOf(0);
    EXPECT_EQ(kill(agents_[1]->pid(), SIGKILL), 0);
    EXPECT_THAT(agents_[0]->AwaitErr(" (lost "), testing::SizeIs(1)) << Logs();
    EXPECT_EQ(WorkersOf(0), workers) << "they live on";
    return workers;
  }
};

TEST_F(InPlaceNodesTest, ANodeJoinsAndLeaves) {
  Start({.nnodes = "1:2", .workers = 2, .steps = 400, .batch = 16, .options = {"--scale-up=immediate"}});
  const std::map<int, pid_t> before = WorkersOf(0);
  Join();
  AwaitSteps(3, 4, LastRound());
  EXPECT_EQ(WorkersOf(0), before);
  const int64_t round = LastRound();
  ASSERT_EQ(kill(agents_[1]->pid(), SIGTERM), 0);
  AwaitSteps(3, 2, round);
  EXPECT_EQ(WorkersOf(0), before);
  EXPECT_TRUE(agents_[1]->Wait());
  agents_.pop_back();
  ExpectResult();
  EXPECT_EQ(Metrics().back().restart, 0);
}

TEST_F(InPlaceNodesTest, ParkedWorkersGoOnWhenANodeTakesThePlaceOfTheLostOne) {
  std::map<int, pid_t> before = ParkForTooFewNodes();
  ASSERT_FALSE(HasFailure());
  // One of them is lost meanwhile.
  ASSERT_EQ(kill(before.at(1), SIGKILL), 0);
  EXPECT_THAT(agents_[0]->AwaitErr("which had parked, ended: SIGKILL"), testing::SizeIs(1));
  const int64_t round = LastRound();
  Join();
  AwaitSteps(3, 4, round);
  const std::map<int, pid_t> after = WorkersOf(0);
  EXPECT_EQ(after.at(0), before.at(0));
  EXPECT_NE(after.at(1), before.at(1));
  agents_.erase(agents_.begin() + 1);
  ExpectResult();
  EXPECT_EQ(Metrics().back().restart, 0);
}

struct EndCase {
  const char* name;
  std::vector<int> signals;
  ProcessEnd end;
};
std::ostream& operator<<(std::ostream& out, const EndCase& c) { return out << c.name; }

class EndWhileParkedTest : public InPlaceNodesTest, public testing::WithParamInterface<EndCase> {};

TEST_P(EndWhileParkedTest, NothingIsLeft) {
  const std::map<int, pid_t> parked = ParkForTooFewNodes();
  ASSERT_FALSE(HasFailure());
  for (const int signal : GetParam().signals) ASSERT_EQ(kill(agents_[0]->pid(), signal), 0);
  EXPECT_EQ(agents_[0]->Wait(), GetParam().end) << Logs();
  EXPECT_TRUE(AwaitEnds(PidsOf(parked)));
  ExpectNothingIsLeft();
}

INSTANTIATE_TEST_SUITE_P(Signals, EndWhileParkedTest,
                         testing::Values(EndCase{"Sigterm", {SIGTERM}, {.code = 1}},
                                         EndCase{"SigintTwice", {SIGINT, SIGINT}, {.code = 1}},
                                         EndCase{"Sigkill", {SIGKILL}, {.code = -1, .signal = SIGKILL}}),
                         [](const auto& info) { return info.param.name; });

// What a process holds, apart from memory of the heap.
struct Holdings {
  size_t descriptors = 0;
  size_t mappings = 0;
  size_t threads = 0;
  static Holdings Of(pid_t pid) {
    const std::string proc = "/proc/" + std::to_string(pid);
    const auto count = [](const std::string& folder) {
      size_t n = 0;
      std::error_code none;
      for (const auto& entry : std::filesystem::directory_iterator(folder, none))
        n += entry.path().empty() ? 0 : 1;
      return n;
    };
    const std::string maps = ReadAll(proc + "/maps");
    return {count(proc + "/fd"), static_cast<size_t>(std::count(maps.begin(), maps.end(), '\n')),
            count(proc + "/task")};
  }
};

TEST_F(InPlaceNodesTest, ASurvivorOfManyRoundsHoldsNoMoreThanAfterItsFirst) {
  Start({.steps = 500});
  const pid_t survivor = WorkersOf(0).at(0);
  for (int i = 0; i < 3 && !HasFatalFailure(); ++i) KillAndRecover({{0, 1 + i % 2}});
  const Holdings before = Holdings::Of(survivor);
  ASSERT_GT(before.mappings, 0);
  for (int i = 0; i < 15 && !HasFatalFailure(); ++i) KillAndRecover({{0, 1 + i % 2}}, /*steps=*/3);
  const Holdings after = Holdings::Of(survivor);
  EXPECT_EQ(num_killed_, 18);
  EXPECT_LE(after.descriptors, before.descriptors);
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.mappings, before.mappings + 5) << "the heap may have changed";
  ExpectResult();
}

}  // namespace
}  // namespace ddprun
