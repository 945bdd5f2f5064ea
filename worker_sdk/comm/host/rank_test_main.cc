// The main program of tests that run scenarios: the test, or one rank of a scenario.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/comm/testing/rank_processes.h"

int main(int argc, char** argv) {
  if (auto self = ddprun::RankProcess::Self()) return ddprun::RunRank(*self);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
