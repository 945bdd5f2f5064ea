// What tests expect of the processes of ranks.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {

inline std::string NameOfSplit(const std::vector<int>& split) { return StrJoin(split, "_"); }

inline void ExpectExit(RankProcesses& ranks, int rank, int code, Duration timeout = seconds(120)) {
  SCOPED_TRACE(StrCat("rank ", rank));
  const std::optional<int> status = ranks.Wait(rank, timeout);
  ASSERT_TRUE(status.has_value()) << "still running";
  EXPECT_TRUE(WIFEXITED(*status)) << "wait status " << *status;
  EXPECT_EQ(WEXITSTATUS(*status), code);
}

inline std::string OutcomeOf(RankProcesses& ranks, int rank) {
  return ranks.store().Get(StrCat("outcome/", rank), seconds(10)).value_or("(no outcome)");
}

inline void AwaitReady(RankProcesses& ranks) {
  for (int r = 0; r < ranks.world_size(); ++r) {
    ASSERT_TRUE(ranks.store().Get(StrCat("ready/", r), seconds(60)).ok()) << "rank " << r;
  }
}

// A split of ranks into nodes, and the rank that is killed or stopped.
struct Death {
  std::vector<int> split;
  int victim;
};

}  // namespace ddprun
