// Jobs whose agents keep the register of the job: the coordinator is lost in several states of the job, in each of three ways. In every case the
// rounds go on with the next number, no restart is charged for the loss, workers of two rounds are never alive together, and the job ends
// with all steps and the loss of an undisturbed run.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/round_watch.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const ProcessEnd kKilled{.signal = SIGKILL};

enum class Loss { kAgentKilled, kPowerOff, kCableCut };

std::string Name(Loss loss) {
  switch (loss) {
    case Loss::kAgentKilled:
      return "AgentKilled";
    case Loss::kPowerOff:
      return "PowerOff";
    case Loss::kCableCut:
      return "CableCut";
  }
  return "";
}

class CoordinatorLossTest : public TrainingTest, public testing::WithParamInterface<Loss> {
 protected:
  void SetUp() override {
    TrainingTest::SetUp();
    if (!IsSkipped()) watch_ = std::make_unique<RoundWatch>();
  }
  void TearDown() override {
    if (watch_) watch_->ExpectOneRoundAtATime(HasFailure() ? 0 : least_rounds_);
  }

  // One agent on each of these hosts. The first one leads.
  void Start(int hosts, int min = 1) {
    StartTraining({.min = min, .max = hosts, .batch = 12, .options = {"--quorum=voters"}});
    // So that a job that is taken over does not end before the test goes on.
    for (int host = 1; host < hosts; ++host) job().agent(host).HoldOut();
    ASSERT_THAT(job().agent(0).err(), HasSubstr("event=lead_begun"));
  }
  // Keeps the host's worker from exiting until it is killed, --shutdown-timeout after the end of its round.
  void DelayStop(int host) { kill(worker(host), SIGSTOP); }

  void Lose(int host) {
    for (size_t i = 0; i < said_.size(); ++i) said_[i] = job().agent(i).err().size();
    lost_.push_back(host);
    FaultNow();
    switch (GetParam()) {
      case Loss::kAgentKilled:
        return job().agent(host).Signal(SIGKILL);
      case Loss::kPowerOff:
        return hosts().PowerOff(host);
      case Loss::kCableCut:
        return hosts().Cut(host);
    }
  }
  // Waits until one of `among` logs `part` after the last call of Lose, and returns it.
  int AwaitOneOf(const std::vector<int>& among, const std::string& part) {
    const TimePoint end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      for (const int host : among) {
        if (job().agent(host).err().find(part, said_[host]) != std::string::npos) return host;
      }
      job().agent(among[0]).Wait(milliseconds(2));  // reads from all agents
    }
    ADD_FAILURE() << "nobody logged " << part << "\n" << job().agent(among[0]).err();
    return among[0];
  }
  int AwaitLeader(const std::vector<int>& among) {
    const int leader = AwaitOneOf(among, "event=lead_begun");
    Detected(std::chrono::steady_clock::now());
    return leader;
  }
  // These hosts, and no other, start the next round. Returns its number.
  int ExpectRound(const std::vector<int>& hosts) {
    int round = -1;
    for (const int host : hosts) round = job().AwaitWorld(host, static_cast<int>(hosts.size()));
    Recovered(job().agent(hosts.back()).found_at());
    return round;
  }
  // Lost hosts return if they can, and the job ends with its result.
  void Finish(std::vector<int> hosts) {
    for (const int host : lost_) {
      if (GetParam() != Loss::kCableCut) {
        EXPECT_EQ(job().agent(host).Wait(), kKilled);
        continue;
      }
      EXPECT_THAT(this->hosts().Find(host, "train"), IsEmpty());
      this->hosts().Heal(host);
      hosts.push_back(host);
    }
    if (GetParam() == Loss::kCableCut) AwaitWorldOf(hosts);
    ExpectCloseResult(hosts);
    for (const int host : hosts) EXPECT_THAT(job().agent(host).err(), Not(HasSubstr("restart_count=\"1\"")));
  }

  int least_rounds_ = 2;
  std::vector<size_t> said_;  // bytes of the stderr of each agent at the last call of Lose
  std::vector<int> lost_;
  std::unique_ptr<RoundWatch> watch_;
};

TEST_P(CoordinatorLossTest, WhileTheJobRuns) {
  Start(3);
  said_.resize(3);
  Lose(0);
  AwaitLeader({1, 2});
  ExpectRound({1, 2});
  Finish({1, 2});
}

TEST_P(CoordinatorLossTest, WhileTheJobIsTakenOver) {
  Start(5);
  said_.resize(5);
  DelayStop(4);
  Lose(0);
  const int second = AwaitOneOf({1, 2, 3, 4}, "event=lead_begun");
  EXPECT_THAT(job().agent(second).err().substr(said_[second]), Not(HasSubstr("event=round_started")));
  Lose(second);
  std::vector<int> left = {1, 2, 3, 4};
  std::erase(left, second);
  AwaitLeader(left);
  ExpectRound(left);
  Finish(left);
}

// Before the first round, with an endpoint at each of three hosts.
TEST_P(CoordinatorLossTest, WhileNodesGather) {
  PrepareTraining({.min = 4, .max = 4, .hosts = 5, .batch = 12, .options = {"--quorum=voters"}});
  const std::string endpoints = "--rdzv-endpoint=node0:29400,node1:29400,node2:29400";
  const auto start = [&](int host) { job().Start(host, {endpoints}).HoldOut(); };
  for (const int host : {0, 1, 2}) start(host);
  for (const int host : {0, 1, 2}) job().AwaitLogged(host, "3/4 nodes joined");
  least_rounds_ = 1;
  said_.assign(3, 0);
  const int leader = AwaitOneOf({0, 1, 2}, "event=lead_begun");
  std::vector<int> left = {0, 1, 2};
  std::erase(left, leader);
  Lose(leader);
  AwaitLeader(left);
  switch (GetParam()) {
    case Loss::kAgentKilled:
      EXPECT_EQ(job().agent(leader).Wait(), kKilled);
      start(leader);
      left.push_back(leader);
      break;
    case Loss::kPowerOff:
      start(4);
      left.push_back(4);
      break;
    case Loss::kCableCut:
      hosts().Heal(leader);
      left.push_back(leader);
  }
  start(3);
  left.push_back(3);
  ExpectRound(left);
  ExpectCloseResult(left);
}

INSTANTIATE_TEST_SUITE_P(Each, CoordinatorLossTest,
                         testing::Values(Loss::kAgentKilled, Loss::kPowerOff, Loss::kCableCut),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace ddprun
