// Rounds that stand still: a worker does not go on, so that the others wait for it in a collective.
#include <signal.h>

#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

class HangTest : public TrainingTest {
 protected:
  // Waits until enough steps are known for a limit of 10 s. Snapshots are taken every 10 steps; they are too few for a limit of their
  // own.
  void StartSteps() {
    StartTraining({.options = {"--max-restarts=1", "--on-hang=restart"}});
    job().AwaitPrinted(0, "step=35/");
  }
};

// The agents learn how long steps take. After 10 s without one, the first node says which rank is behind, and why. After 30 s
// the round is restarted, and the stopped worker is killed.
TEST_F(HangTest, AStoppedWorker) {
  StartSteps();
  FaultNow();
  const TimePoint stopped = std::chrono::steady_clock::now();
  kill(worker(1), SIGSTOP);
  const std::string still = job().AwaitLogged(0, "event=round_stands_still");
  EXPECT_LT(job().agent(0).found_at() - stopped, seconds(12));
  EXPECT_THAT(still, HasSubstr("rank 1 on node1 is stopped by a signal"));
  EXPECT_THAT(job().AwaitLogged(0, "event=round_hung"), HasSubstr("rank 1 on node1 is stopped by a signal"));
  Detected(job().agent(0).found_at());
  EXPECT_EQ(job().AwaitWorld(0, 2), 1);
  Recovered(job().agent(0).found_at());
  ExpectResult({0, 1});
}

}  // namespace
}  // namespace ddprun
