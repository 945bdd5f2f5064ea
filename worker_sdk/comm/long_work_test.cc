// Tests FinishTogether with real processes. The first rank works while the other ranks wait.
#include "worker_sdk/comm/long_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/event.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr Duration kStallLimit = milliseconds(600);
constexpr int kWaited = 0, kEnded = 42;

// Runs one rank of a scenario. In each scenario, the first rank does the following:
//   steady: works for four times the stall limit and advances its progress.
//   stuck:  works for the same time without advancing its progress.
//   stop:   suspends itself with SIGSTOP.
//   die:    kills itself with SIGKILL.
int RunRank(const RankProcess& self) {
  FakeFileStore store(self.store_dir);
  auto comm = CreateHostCommunicator(self.options, &store);
  if (!comm.ok()) return 3;
  const std::string& what = self.args[0];
  const LongWork work = [&](WorkProgress& progress) {
    if (what == "stop") raise(SIGSTOP);
    if (what == "die") raise(SIGKILL);
    Event never;
    for (int i = 0; i < 16; ++i) {
      never.WaitUntil(std::chrono::steady_clock::now() + kStallLimit / 4);
      if (what == "steady") progress.Advance();
    }
  };
  const bool first = self.options.rank == Rank(0);
  const Status status = FinishTogether(*comm, "writing a snapshot", kStallLimit, first ? work : LongWork());
  (void)store.Set(StrCat("outcome/", self.options.rank.value()), status.ToString());
  return status.ok() ? kWaited : kEnded;
}

class LongWorkTest : public testing::TestWithParam<std::vector<int>> {
 protected:
  static int ExitOf(RankProcesses& ranks, int rank, Duration timeout = seconds(60)) {
    const std::optional<int> status = ranks.Wait(rank, timeout);
    return status && WIFEXITED(*status) ? WEXITSTATUS(*status) : -1;
  }
  static std::string OutcomeOf(RankProcesses& ranks, int rank) {
    return ranks.store().Get(StrCat("outcome/", rank), seconds(10)).value_or("(no outcome)");
  }
};

TEST_P(LongWorkTest, AllSucceedWhileTheWorkAdvances) {
  RankProcesses ranks(GetParam(), {"steady"});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) EXPECT_EQ(ExitOf(ranks, r), kWaited) << OutcomeOf(ranks, r);
}

TEST_P(LongWorkTest, AllRanksFailWhenTheWorkIsStuck) {
  RankProcesses ranks(GetParam(), {"stuck"});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) {
    EXPECT_EQ(ExitOf(ranks, r), kEnded);
    EXPECT_THAT(OutcomeOf(ranks, r), HasSubstr("writing a snapshot: rank 0 has made no progress for 600 ms"));
  }
}

TEST_P(LongWorkTest, OthersTimeOutWhenTheWorkingRankIsStopped) {
  RankProcesses ranks(GetParam(), {"stop"});
  ranks.StartAll();
  for (int r = 1; r < ranks.world_size(); ++r) {
    EXPECT_EQ(ExitOf(ranks, r), kEnded);
    EXPECT_THAT(OutcomeOf(ranks, r),
                testing::AllOf(HasSubstr("writing a snapshot"), HasSubstr("waiting for rank 0")));
  }
  EXPECT_TRUE(ranks.IsStopped(0));
}

TEST_P(LongWorkTest, OthersFailWhenTheWorkingRankDies) {
  RankProcesses ranks(GetParam(), {"die"});
  ranks.StartAll();
  for (int r = 1; r < ranks.world_size(); ++r) {
    EXPECT_EQ(ExitOf(ranks, r), kEnded);
    EXPECT_THAT(OutcomeOf(ranks, r), HasSubstr("rank 0 of round 7 is gone"));
  }
}

INSTANTIATE_TEST_SUITE_P(, LongWorkTest,
                         testing::Values(std::vector{2}, std::vector{1, 1}, std::vector{2, 1}),
                         [](const auto& info) {
                           std::string name;
                           for (const int n : info.param) StrAppend(&name, name.empty() ? "" : "_", n);
                           return name;
                         });

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (auto self = ddprun::RankProcess::Self()) return ddprun::RunRank(*self);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
