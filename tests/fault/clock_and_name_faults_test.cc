// Tests hosts whose clock steps, or whose name resolution fails.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::Ge;
using testing::Le;
using testing::SizeIs;

constexpr char kFakeTime[] = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

class ClockStepsTest : public TrainingTest {
 protected:
  void SetUp() override {
    TrainingTest::SetUp();
    if (!std::ifstream(kFakeTime)) GTEST_SKIP() << kFakeTime << " is missing";
  }

  // Steps the wall clock of `host` during training, then kills a worker, so that a round starts with the new
  // time.
  void Step(int host, int step_seconds) {
    SetClock(0);
    // NO_FAKE_STAT: libfaketime's stat() holds a semaphore that all processes share. A worker that is killed
    // inside stat() would block the agent's next stat() forever.
    const Environment with_clock = {{"LD_PRELOAD", kFakeTime},    {"FAKETIME_TIMESTAMP_FILE", offset_file_},
                                    {"FAKETIME_NO_CACHE", "1"},   {"FAKETIME_DONT_FAKE_MONOTONIC", "1"},
                                    {"DONT_FAKE_MONOTONIC", "1"}, {"NO_FAKE_STAT", "1"}};
    StartTraining({.environments = {{host, with_clock}}});
    FaultNow();
    SetClock(step_seconds);
    const auto clock = hosts().Start(host, {"/bin/date", "+%s"}, with_clock);
    ASSERT_EQ(clock->Wait(), ProcessEnd{.code = 0});
    using std::chrono::system_clock;
    const int64_t now = system_clock::to_time_t(system_clock::now());
    EXPECT_THAT(std::stoll(clock->out()) - now, testing::AllOf(Ge(step_seconds - 60), Le(step_seconds + 60)));
    job().AwaitPrinted(0, "step=150/");
    ExpectUndisturbed();
    kill(worker(1), SIGKILL);
    ExpectFailure("SIGKILL", 2);
    ExpectResult({0, 1});
  }

 private:
  // Replaces the file atomically, so that no process reads a partial file.
  void SetClock(int step_seconds) {
    std::ofstream(offset_file_ + ".new") << (step_seconds < 0 ? "" : "+") << step_seconds << "\n";
    ASSERT_EQ(rename((offset_file_ + ".new").c_str(), offset_file_.c_str()), 0);
  }

  const std::string offset_file_ = MakeTestDirectory() + "/offset";
};

TEST_F(ClockStepsTest, ForwardOnTheCoordinatorsHost) { Step(0, 3600); }
TEST_F(ClockStepsTest, BackwardOnTheCoordinatorsHost) { Step(0, -3600); }
TEST_F(ClockStepsTest, ForwardOnAnotherHost) { Step(1, 3600); }
TEST_F(ClockStepsTest, BackwardOnAnotherHost) { Step(1, -3600); }

class NamesTest : public TrainingTest {};

// A job whose endpoint is an address needs no name resolution.
TEST_F(NamesTest, NoNameServerAnswers) {
  StartTraining({.by_address = true, .prepare = [this](const std::string&) {
                   for (const int host : {0, 1}) hosts().LoseNames(host);
                   FaultNow();
                 }});
  const auto lookup = hosts().Start(1, {"/usr/bin/getent", "ahostsv4", "node0"});
  EXPECT_EQ(lookup->Wait(milliseconds(500)), std::nullopt);  // The lookup blocks: the fault is in effect.
  kill(worker(1), SIGKILL);
  ExpectFailure("SIGKILL", 2);
  job().agent(1).Signal(SIGKILL);
  job().agent(1).Wait();
  StartHost(1);
  AwaitWorldOf({0, 1});
  ExpectResult({0, 1});
}

}  // namespace
}  // namespace ddprun
