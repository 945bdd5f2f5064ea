// A coordinator that leads its job by the job's register.

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/value_codec.h"
#include "rendezvous/coordinator/coordinator_fixture.h"

namespace ddprun {
namespace {

using ::testing::SizeIs;

class FakeKeeper : public CharterKeeper {
 public:
  void Write(int64_t number, const Charter& charter) override { writes.emplace_back(number, charter); }
  void HandOver(bool forget) override { handed_over = forget; }
  Duration LeadLeft() const override { return seconds(4); }

  std::vector<std::pair<int64_t, Charter>> writes;
  std::optional<bool> handed_over;  // the argument
};

proto::AgentMessage Failing(int round) {
  proto::AgentMessage message;
  message.mutable_workers_failed()->set_round(round);
  *message.mutable_workers_failed()->mutable_failure() =
      EncodeFailure({.exit = Exited{1}, .cause = "rank 0 failed"}, TimePoint());
  return message;
}

proto::AgentMessage Stopped(int round) {
  proto::AgentMessage message;
  message.mutable_ready()->set_round(round);
  message.mutable_ready()->set_store_port(1);
  return message;
}

class CoordinatorLeadTest : public CoordinatorTest {
 protected:
  CoordinatorLeadTest() { Limit({.registered = true}); }

  void Lead(std::optional<Charter> charter = {}, Takeover how = Takeover::kHandedOver) {
    coordinator_->BeginToLead({"j", std::move(charter), how}, &keeper_);
  }
  // Two nodes run round 0, whose charter is written. The node a is in the coordinator's process.
  void RunRound() {
    Lead();
    SendFrom(local_, Joining("a"));
    SendFrom(b_, Joining("b"));
    coordinator_->CharterWritten(1);
    ASSERT_THAT(local_.Received(), ElementsAre("start r0 node0/2"));
    ASSERT_THAT(b_.Received(), ElementsAre("start r0 node1/2"));
  }

  FakeKeeper keeper_;
  FakePeer local_{/*in_process=*/true};
};

TEST_F(CoordinatorLeadTest, AProcessThatDoesNotLeadSendsAgentsAway) {
  EXPECT_THAT(SendFrom(a_, Joining("a")), ElementsAre("dismiss EVICTED", "end"));
  Lead();
  EXPECT_THAT(SendFrom(b_, Joining("b", "another")), ElementsAre("dismiss EVICTED", "end"));
  EXPECT_THAT(b_.last().dismiss().message(), HasSubstr("does not lead job another"));
}

TEST_F(CoordinatorLeadTest, ARoundStartsOnlyWhenItsCharterIsWritten) {
  Lead();
  SendFrom(a_, Joining("a"));
  EXPECT_THAT(SendFrom(b_, Joining("b")), ElementsAre("welcome 15000"));
  ASSERT_THAT(keeper_.writes, SizeIs(1));
  EXPECT_EQ(keeper_.writes[0].first, 1);
  EXPECT_EQ(keeper_.writes[0].second.round, Round(0));
  EXPECT_THAT(a_.Received(), IsEmpty());
  coordinator_->CharterWritten(1);
  EXPECT_THAT(a_.Received(), ElementsAre("start r0 node0/2"));
  EXPECT_THAT(b_.Received(), ElementsAre("start r0 node1/2"));
}

TEST_F(CoordinatorLeadTest, HeartbeatsAreAnsweredMeanwhileAndLaterEffectsAreNot) {
  Lead();
  SendFrom(a_, Joining("a"));
  SendFrom(b_, Joining("b"));
  EXPECT_THAT(SendFrom(a_, Beating()), ElementsAre("heard"));
  EXPECT_THAT(SendFrom(a_, Failing(0)), IsEmpty());
  coordinator_->CharterWritten(1);
  EXPECT_THAT(a_.Received(), ElementsAre("start r0 node0/2", "stop r0"));
}

TEST_F(CoordinatorLeadTest, ARestartIsReportedWhenItIsCharged) {
  RunRound();
  SendFrom(local_, Failing(0));
  SendFrom(local_, Stopped(0));
  EXPECT_THAT(SendFrom(b_, Stopped(0)), ElementsAre("stop r0"));
  ASSERT_THAT(keeper_.writes, SizeIs(2));
  EXPECT_EQ(keeper_.writes[1].second.restarts, 1);
  EXPECT_EQ(keeper_.writes[1].second.round, Round(1));
  coordinator_->CharterWritten(2);
  EXPECT_THAT(b_.Received(), ElementsAre("report r0", "start r1 node1/2"));
}

TEST_F(CoordinatorLeadTest, AStopIsAnsweredWhenItIsWritten) {
  RunRound();
  std::optional<std::string> answer;
  coordinator_->Stop("j", "enough", [&](const absl::StatusOr<std::string>& text) { answer = *text; });
  EXPECT_FALSE(answer.has_value());
  coordinator_->CharterWritten(2);
  EXPECT_EQ(answer, "job j is being stopped on 2 nodes");
}

TEST_F(CoordinatorLeadTest, ARequestFailsWithTheLead) {
  RunRound();
  absl::Status status;
  coordinator_->Stop("j", "enough", [&](const absl::StatusOr<std::string>& text) { status = text.status(); });
  coordinator_->LeadLost();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST_F(CoordinatorLeadTest, WithTheLeadAllAgentsAreLostAndHeldEffectsAreNotSent) {
  RunRound();
  SendFrom(b_, Failing(0));
  SendFrom(local_, Stopped(0));
  b_.Received();
  local_.Received();
  SendFrom(b_, Stopped(0));
  coordinator_->LeadLost();
  EXPECT_THAT(b_.Received(), ElementsAre("end"));
  EXPECT_THAT(local_.Received(), ElementsAre("end"));
  EXPECT_EQ(num_jobs(), 0u);
  coordinator_->CharterWritten(2);  // too late
  EXPECT_THAT(b_.Received(), IsEmpty());
  EXPECT_THAT(SendFrom(c_, Joining("c")), ElementsAre("dismiss EVICTED", "end"));
}

TEST_F(CoordinatorLeadTest, ALaterLeadOfTheSameProcessNumbersItsChartersFromOne) {
  RunRound();
  coordinator_->LeadLost();
  const Charter charter = keeper_.writes.back().second;
  keeper_.writes.clear();
  Lead(charter, Takeover::kFenced);
  SendFrom(c_, Joining("c"));
  SendFrom(a_, Joining("d"));
  ASSERT_THAT(keeper_.writes, SizeIs(1));
  EXPECT_EQ(keeper_.writes[0].first, 1);
  EXPECT_THAT(a_.Received(), IsEmpty());
  coordinator_->CharterWritten(1);
  EXPECT_THAT(a_.Received(), ElementsAre("start r1 node1/2"));
}

TEST_F(CoordinatorLeadTest, TheHostsNodeHasALease) {
  Lead();
  EXPECT_THAT(SendFrom(local_, Joining("a")), ElementsAre("welcome 15000"));
  const auto& members = coordinator_->machine_for_test().jobs().at("j").machine.membership();
  EXPECT_TRUE(members.At(NodeId("a")).info.hosts);
  EXPECT_TRUE(members.At(NodeId("a")).info.leased);
}

TEST_F(CoordinatorLeadTest, AHostThatLeavesHandsItsJobOver) {
  RunRound();
  proto::AgentMessage leaving;
  leaving.mutable_leave()->set_reason("SIGTERM");
  SendFrom(local_, leaving);
  EXPECT_THAT(b_.Received(), ElementsAre("stop r0"));
  SendFrom(local_, Leaving());
  SendFrom(b_, Stopped(0));
  // The register is told first, without the host among the members.
  ASSERT_FALSE(keeper_.writes.empty());
  EXPECT_EQ(keeper_.writes.back().second.electorate, (std::multiset<std::string>{"host-b"}));
  EXPECT_FALSE(keeper_.handed_over.has_value());
  EXPECT_THAT(b_.Received(), IsEmpty());
  coordinator_->CharterWritten(keeper_.writes.back().first);
  EXPECT_EQ(keeper_.handed_over, false);
  EXPECT_THAT(b_.Received(), ElementsAre("report r0"));
  coordinator_->HandedOver();
  EXPECT_THAT(b_.Received(), ElementsAre("dismiss MOVED", "end"));
  EXPECT_EQ(coordinator_->num_open_jobs(), 0);
}

TEST_F(CoordinatorLeadTest, AProcessThatEndsHandsItsJobOver) {
  RunRound();
  coordinator_->CloseAll("the process exits");
  EXPECT_THAT(b_.Received(), ElementsAre("stop r0"));
  SendFrom(local_, Stopped(0));
  SendFrom(b_, Stopped(0));
  EXPECT_EQ(keeper_.handed_over, false);
}

TEST_F(CoordinatorLeadTest, AJobWithoutNodesIsHandedOverAtOnce) {
  Lead();
  coordinator_->CloseAll("the process exits");
  EXPECT_EQ(keeper_.handed_over, false);
}

TEST_F(CoordinatorLeadTest, ANewCoordinatorGoesOnWithTheCharter) {
  Charter charter{.rules = {.min_nodes = 1, .max_nodes = 2, .max_restarts = 3},
                  .round = Round(6),
                  .restarts = 2,
                  .electorate = {"host-a", "host-b"},
                  .coordinator_host = "host-a"};
  Lead(charter, Takeover::kFenced);
  proto::AgentMessage join = Joining("b", "j", 1, 2);
  (*join.mutable_join()->mutable_rules())["max_restarts"] = 3;
  SendFrom(b_, join);
  const RoundMachine& machine = coordinator_->machine_for_test().jobs().at("j").machine;
  EXPECT_EQ(machine.restarts(), 2);
  EXPECT_EQ(machine.round(), Round(6));
  EXPECT_EQ(machine.state(), RoundMachine::State::kGathering);
}

// The node b joins again after round 6.
proto::AgentMessage Rejoining() {
  proto::AgentMessage join = Joining("b", "j", 1, 2);
  join.mutable_join()->mutable_last()->set_round(6);
  join.mutable_join()->mutable_last()->set_ran_ms(3'600'000);
  return join;
}

// After round 6 of the nodes a and b. The node `a1` of host-a was that of the coordinator.
Charter AfterRound6() {
  return {.rules = *DecodeRules(Rejoining().join().rules()),
          .round = Round(6),
          .electorate = {"host-a", "host-b"},
          .coordinator_host = "host-a",
          .coordinator_node = NodeId("a1"),
          .coordinator_token = "secret"};
}

TEST_F(CoordinatorLeadTest, AReportOfTheLastCoordinatorsWardenMayComeBeforeTheLead) {
  for (const bool before : {true, false}) {
    keeper_.writes.clear();
    const auto report = [this] { EXPECT_TRUE(coordinator_->ReportGone("j", NodeId("a1"), "secret").ok()); };
    if (before) report();
    Lead(AfterRound6(), Takeover::kUnfenced);
    EXPECT_TRUE(absl::IsNotFound(coordinator_->ReportGone("j", NodeId("a1"), "wrong")));
    FakePeer b;
    EXPECT_THAT(SendFrom(b, Rejoining()), ElementsAre("welcome 15000"));
    EXPECT_THAT(keeper_.writes, SizeIs(before ? 1 : 0));
    if (!before) report();
    ASSERT_THAT(keeper_.writes, SizeIs(1));
    EXPECT_EQ(keeper_.writes[0].second.round, Round(7));
    coordinator_->LeadLost();
    HangUp(b);
  }
}

TEST_F(CoordinatorLeadTest, AnAgentPassesReportsOnToTheNextLeader) {
  EXPECT_THAT(coordinator_->GoneNodes(), IsEmpty());
  EXPECT_TRUE(coordinator_->ReportGone("j", NodeId("a0"), "of another round").ok());
  EXPECT_THAT(coordinator_->GoneNodes(),
              ElementsAre(std::pair<std::string, std::string>("a0", "of another round")));
  Lead(AfterRound6(), Takeover::kUnfenced);
  EXPECT_THAT(coordinator_->GoneNodes(), IsEmpty());
  proto::AgentMessage join = Rejoining();
  proto::GoneNode& gone = *join.mutable_join()->add_gone();
  gone.set_node_id("a1");
  gone.set_gone_token("secret");
  SendFrom(b_, join);
  EXPECT_THAT(keeper_.writes, SizeIs(1));
}

TEST_F(CoordinatorLeadTest, TheWardenOfTheLeaderFindsAStandby) {
  EXPECT_EQ(coordinator_->Standby(), std::nullopt);
  RunRound();
  EXPECT_EQ(coordinator_->Standby(), std::nullopt);  // it has no port
  proto::AgentMessage join = Joining("c");
  join.mutable_join()->set_coordinator_port(4711);
  SendFrom(c_, join);
  EXPECT_EQ(coordinator_->Standby(), (std::pair<std::string, int>("10.0.0.7", 4711)));
  HangUp(c_);
  EXPECT_EQ(coordinator_->Standby(), std::nullopt);
}

TEST_F(CoordinatorLeadTest, ADrainMayTakeTheHost) {
  RunRound();
  std::string answer;
  coordinator_->Drain("j", "host-a", "maintenance",
                      [&](const absl::StatusOr<std::string>& text) { answer = text.value(); });
  // The next coordinator must know it, too.
  EXPECT_EQ(answer, "");
  EXPECT_THAT(keeper_.writes.back().second.drains, SizeIs(1));
  coordinator_->CharterWritten(2);
  EXPECT_THAT(answer, HasSubstr("will be taken out"));
  EXPECT_THAT(local_.Received(), ElementsAre("stop r0"));
}

}  // namespace
}  // namespace ddprun
