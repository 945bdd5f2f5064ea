#include "launcher/cli/exit_code.h"

#include <csignal>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(ExitCodeTest, SchedulerCodesMarkFailuresWorthARetry) {
  const struct {
    EndReason reason;
    int torchrun, scheduler;
  } kTable[] = {
      {EndReason::kSucceeded, 0, 0},        {EndReason::kDrained, 0, 0},
      {EndReason::kJobFailed, 1, 1},        {EndReason::kRejected, 1, 1},
      {EndReason::kStopped, 1, 1},          {EndReason::kInterrupted, 1, 1},
      {EndReason::kTerminated, 1, 75},      {EndReason::kJoinTimeout, 1, 75},
      {EndReason::kCoordinatorLost, 1, 75}, {EndReason::kCoordinatorEnded, 1, 75},
      {EndReason::kEvicted, 1, 75},         {EndReason::kBroken, 1, 75},
      {EndReason::kPreempted, 1, 75},
  };
  for (const auto& row : kTable) {
    EXPECT_EQ(ExitCodeOf(row.reason, ExitCodes::kTorchrun), row.torchrun) << static_cast<int>(row.reason);
    EXPECT_EQ(ExitCodeOf(row.reason, ExitCodes::kScheduler), row.scheduler) << static_cast<int>(row.reason);
  }
}

TEST(ExitCodeTest, KeyboardSignalsInterruptAndSystemSignalsTerminate) {
  EXPECT_EQ(ReasonOfSignal(SIGINT), EndReason::kInterrupted);
  EXPECT_EQ(ReasonOfSignal(SIGQUIT), EndReason::kInterrupted);
  EXPECT_EQ(ReasonOfSignal(SIGTERM), EndReason::kTerminated);
  EXPECT_EQ(ReasonOfSignal(SIGHUP), EndReason::kTerminated);
}

TEST(ExitCodeTest, HelpHasBothColumns) {
  EXPECT_THAT(ExitCodeHelp(),
              testing::HasSubstr("the job succeeded                                    0            0\n"));
  EXPECT_THAT(ExitCodeHelp(),
              testing::HasSubstr("the launcher received SIGTERM or another signal      1           75\n"));
}

}  // namespace
}  // namespace ddprun
