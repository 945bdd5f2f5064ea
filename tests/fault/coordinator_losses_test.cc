// Jobs with a register, which voters or etcd keep: the coordinator is lost in each state of the job, in each of three ways. In every case the
// rounds go on with the next number, no restart is charged for the loss, workers of two rounds are never alive together, and the job ends
// with all steps and the loss of an undisturbed run.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/etcd.h"
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

enum class Register { kVoters, kEtcd };

std::string Name(Register which) { return which == Register::kVoters ? "Voters" : "Etcd"; }

class CoordinatorLossTest : public TrainingTest,
                            public testing::WithParamInterface<std::tuple<Register, Loss>> {
 protected:
  void SetUp() override {
    TrainingTest::SetUp();
    if (IsSkipped()) return;
    if (has_etcd()) {
      if (const std::string why_not = EtcdServer::WhyNot(); !why_not.empty()) GTEST_SKIP() << why_not;
    }
    watch_ = std::make_unique<RoundWatch>();
  }
  void TearDown() override {
    if (watch_) watch_->ExpectOneRoundAtATime(HasFailure() ? 0 : least_rounds_);
  }

  bool has_etcd() const { return std::get<Register>(GetParam()) == Register::kEtcd; }
  Loss loss() const { return std::get<Loss>(GetParam()); }

  // One agent on each of these hosts. The first one leads. If a worker of the last one has to stop, it does so only when it is killed,
  // --shutdown-timeout after the end of its round.
  void Start(int hosts) {
    StartTraining({.max = hosts,
                   .batch = 12,
                   .etcd_members = has_etcd() ? 1 : 0,
                   .options = {"--snapshot-timeout=1"},  // workers whose output is held may take none
                   .shell = "[ -n \"$LINGERS\" ] && { trap '' TERM; \"$@\" && exit 0; sleep 1000; }",
                   .environments = {{hosts - 1, {{"LINGERS", "1"}}}}});
    // So that a job that is taken over does not end before the test goes on.
    for (int host = 1; host < hosts; ++host) job().agent(host).HoldOut();
    ASSERT_THAT(job().agent(0).err(), HasSubstr("event=lead_begun"));
    said_.assign(hosts, 0);
  }
  bool IsStopping(int host) { return !hosts().Find(host, "sh").empty(); }

  void Lose(int host) {
    for (size_t i = 0; i < said_.size(); ++i) said_[i] = job().agent(i).err().size();
    lost_.push_back(host);
    FaultNow();
    switch (loss()) {
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
    ADD_FAILURE() << "no agent has logged " << part << "\n" << job().agent(among[0]).err();
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
  void Finish(std::vector<int> hosts, int restarts = 0) {
    for (const int host : lost_) {
      if (loss() != Loss::kCableCut) {
        EXPECT_EQ(job().agent(host).Wait(), kKilled);
        continue;
      }
      EXPECT_THAT(this->hosts().Find(host, "train"), IsEmpty());
      this->hosts().Heal(host);
      hosts.push_back(host);
    }
    if (loss() == Loss::kCableCut) AwaitWorldOf(hosts);
    ExpectCloseResult(hosts);
    const std::string more = "restart_count=\"" + std::to_string(restarts + 1) + "\"";
    for (const int host : hosts) EXPECT_THAT(job().agent(host).err(), Not(HasSubstr(more)));
  }

  // The last node does not stop its worker before the coordinator is lost. Its agent exits with `exit_code`, and the others go on.
  void LoseWhileTheLastOfFiveGoes(int exit_code) {
    job().AwaitLogged(0, "event=round_ended");
    EXPECT_TRUE(IsStopping(4));
    Lose(0);
    AwaitLeader({1, 2, 3, 4});
    ExpectRound({1, 2, 3});
    job().ExpectEnd(4, {.code = exit_code});
    Finish({1, 2, 3});
  }

  int least_rounds_ = 2;
  std::vector<size_t> said_;  // bytes of the stderr of each agent at the last call of Lose
  std::vector<int> lost_;
  std::unique_ptr<RoundWatch> watch_;
};

TEST_P(CoordinatorLossTest, WhileTheJobRuns) {
  Start(3);
  Lose(0);
  AwaitLeader({1, 2});
  ExpectRound({1, 2});
  Finish({1, 2});
}

TEST_P(CoordinatorLossTest, WhileAnotherNodeIsDrained) {
  Start(5);
  EXPECT_EQ(job().Control(0, {"drain", "node4"})->Wait(), ProcessEnd{.code = 0});
  LoseWhileTheLastOfFiveGoes(/*exit_code=*/0);
}

TEST_P(CoordinatorLossTest, WhileAnotherNodeLeaves) {
  Start(5);
  job().agent(4).Signal(SIGTERM);
  LoseWhileTheLastOfFiveGoes(/*exit_code=*/1);
}

TEST_P(CoordinatorLossTest, WhileWorkersStopAfterAFailure) {
  Start(3);
  kill(worker(1), SIGKILL);
  job().AwaitLogged(0, "event=round_ended");
  EXPECT_TRUE(IsStopping(2));
  Lose(0);
  AwaitLeader({1, 2});
  ExpectRound({1, 2});
  Finish({1, 2}, 1);
}

// Host 2 does not learn that the second round has begun.
TEST_P(CoordinatorLossTest, AfterASealThatOneNodeHasMissed) {
  Start(3);
  kill(worker(1), SIGKILL);
  job().AwaitLogged(2, "stopping the workers of round");
  hosts().DropPackets(2, 0);
  for (const pid_t pid : hosts().Find(2, "sh")) kill(pid, SIGKILL);
  const int sealed = job().AwaitWorld(1, 3);
  EXPECT_THAT(job().agent(2).err(), Not(HasSubstr("round=\"" + std::to_string(sealed) + "\"")));
  Lose(0);
  if (loss() == Loss::kCableCut) hosts().PassPackets(2, 0);
  AwaitLeader({1, 2});
  EXPECT_GT(ExpectRound({1, 2}), sealed);
  Finish({1, 2}, 1);
}

TEST_P(CoordinatorLossTest, WhileTheJobIsTakenOver) {
  Start(5);
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

// Before the first round. With voters there is an endpoint at each of three hosts.
TEST_P(CoordinatorLossTest, WhileNodesGather) {
  PrepareTraining({.min = 4, .max = 4, .hosts = 5, .batch = 12, .etcd_members = has_etcd() ? 1 : 0});
  const Args endpoints = has_etcd() ? Args{} : Args{"--rdzv-endpoint=node0:29400,node1:29400,node2:29400"};
  const auto start = [&](int host) { job().Start(host, endpoints).HoldOut(); };
  for (const int host : {0, 1, 2}) start(host);
  for (const int host : {0, 1, 2}) job().AwaitLogged(host, "3/4 nodes joined");
  least_rounds_ = 1;
  said_.assign(3, 0);
  const int leader = AwaitOneOf({0, 1, 2}, "event=lead_begun");
  std::vector<int> left = {0, 1, 2};
  std::erase(left, leader);
  Lose(leader);
  AwaitLeader(left);
  switch (loss()) {
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

INSTANTIATE_TEST_SUITE_P(
    Each, CoordinatorLossTest,
    testing::Combine(testing::Values(Register::kVoters, Register::kEtcd),
                     testing::Values(Loss::kAgentKilled, Loss::kPowerOff, Loss::kCableCut)),
    [](const auto& info) { return Name(std::get<Register>(info.param)) + Name(std::get<Loss>(info.param)); });

}  // namespace
}  // namespace ddprun
