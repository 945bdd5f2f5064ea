// Tests of nodes that leave or are lost, and of jobs that are closed or forgotten.
#include "rendezvous/coordinator/coordinator_fixture.h"

namespace ddprun {
namespace {

TEST_F(CoordinatorTest, AJobWithoutNodesIsForgottenAndMayBeStartedWithOtherOptions) {
  SendFrom(a_, Joining("a"));
  SendFrom(b_, Joining("b"));
  SendFrom(a_, Leaving());
  HangUp(a_);
  EXPECT_EQ(num_jobs(), 1u);
  SendFrom(b_, Leaving());
  EXPECT_EQ(num_jobs(), 0u);
  EXPECT_THAT(SendFrom(c_, Joining("c", "j", 1, 1)), ElementsAre("welcome 15000", "start r0 node0/1"));
}

TEST_F(CoordinatorTest, AJobWhoseNodesWereAllLostContinuesWithTheNextRound) {
  proto::AgentMessage a = Joining("a", "j", 1, 1);
  a.mutable_join()->set_gone_token("secret");
  SendFrom(a_, a);
  HangUp(a_);
  ASSERT_TRUE(coordinator_->ReportGone("j", NodeId("a"), "secret").ok());
  EXPECT_EQ(num_jobs(), 1u);
  EXPECT_THAT(SendFrom(b_, Joining("b", "j", 1, 1)), ElementsAre("welcome 15000", "start r1 node0/1"));
}

TEST_F(CoordinatorTest, AJobWhoseNodesWereAllLostMayBeStartedWithOtherOptions) {
  proto::AgentMessage a = Joining("a", "j", 1, 1);
  a.mutable_join()->set_gone_token("secret");
  SendFrom(a_, a);
  HangUp(a_);
  ASSERT_TRUE(coordinator_->ReportGone("j", NodeId("a"), "secret").ok());
  EXPECT_THAT(SendFrom(b_, Joining("b", "j", 2, 2)), ElementsAre("welcome 15000"));
}

TEST_F(CoordinatorTest, AJobWhoseNodesWereAllLostMayBeStopped) {
  proto::AgentMessage a = Joining("a", "j", 1, 1);
  a.mutable_join()->set_gone_token("secret");
  SendFrom(a_, a);
  HangUp(a_);
  ASSERT_TRUE(coordinator_->ReportGone("j", NodeId("a"), "secret").ok());
  ASSERT_TRUE(Stop("j", "enough").ok());
  EXPECT_FALSE(coordinator_->machine_for_test().NextDeadline().has_value());
}

TEST_F(CoordinatorTest, AJobWhoseNodesWereAllLostIsForgottenAfterItsJoinTimeout) {
  proto::AgentMessage a = Joining("a", "j", 1, 1);
  a.mutable_join()->set_gone_token("secret");
  (*a.mutable_join()->mutable_rules())["join_timeout_ms"] = 3;
  SendFrom(a_, a);
  HangUp(a_);
  ASSERT_TRUE(coordinator_->ReportGone("j", NodeId("a"), "secret").ok());
  b_.id = coordinator_->Attach(&b_);
  while (num_jobs() > 0 && io_.run_one_for(seconds(20)) == 1) {
  }
  EXPECT_EQ(num_jobs(), 0u);
}

TEST_F(CoordinatorTest, TheLastNodeMayLeaveAndDisconnectLater) {
  SendFrom(a_, Joining("a"));
  EXPECT_THAT(SendFrom(a_, Leaving()), IsEmpty());
  EXPECT_EQ(num_jobs(), 0u);
  EXPECT_THAT(SendFrom(a_, Beating()), IsEmpty());
  HangUp(a_);
  EXPECT_EQ(num_jobs(), 0u);
}

TEST_F(CoordinatorTest, TheMostRecentlyClosedJobsAreRemembered) {
  Limit({.closed_jobs = 2});
  for (const char* job : {"one", "two", "three"}) {
    FakePeer peer;
    SendFrom(peer, Joining("a", job, 1, 1));
    proto::AgentMessage done;
    done.mutable_workers_succeeded()->set_round(0);
    EXPECT_THAT(SendFrom(peer, done), ElementsAre("dismiss SUCCEEDED", "end"));
    HangUp(peer);
  }
  EXPECT_EQ(num_jobs(), 2u);
  // A join with different options does not reopen a closed job.
  EXPECT_THAT(SendFrom(a_, Joining("b", "two")), ElementsAre("welcome 15000", "dismiss REJECTED", "end"));
  EXPECT_THAT(a_.last().dismiss().message(), HasSubstr("the job is closed: it has succeeded"));
  EXPECT_THAT(SendFrom(b_, Joining("b", "one", 1, 1)), ElementsAre("welcome 15000", "start r0 node0/1"));
}

TEST_F(CoordinatorTest, CloseAllDismissesAllAgents) {
  SendFrom(a_, Joining("a"));
  b_.id = coordinator_->Attach(&b_);
  a_.Received();
  coordinator_->CloseAll("the host goes down");
  EXPECT_THAT(a_.Received(), ElementsAre("dismiss COORDINATOR_ENDED", "end"));
  EXPECT_THAT(b_.Received(), ElementsAre("dismiss COORDINATOR_ENDED", "end"));
  EXPECT_THAT(SendFrom(c_, Joining("c", "new")), ElementsAre("dismiss COORDINATOR_ENDED", "end"));
  EXPECT_EQ(c_.last().dismiss().message(), "the host goes down");
}

TEST_F(CoordinatorTest, AStoppedJobDismissesAllNodes) {
  SendFrom(a_, Joining("a"));
  SendFrom(b_, Joining("b"));
  a_.Received();
  EXPECT_EQ(*Stop("", "enough"), "job j is being stopped on 2 nodes");
  EXPECT_THAT(a_.Received(), ElementsAre("stop r0"));
  EXPECT_THAT(SendFrom(c_, Joining("c")), ElementsAre("welcome 15000", "dismiss STOPPED", "end"));
  SendFrom(a_, ReadyFor(0));
  SendFrom(b_, ReadyFor(0));
  EXPECT_THAT(a_.Received(), ElementsAre("dismiss STOPPED", "end"));
  EXPECT_EQ(a_.last().dismiss().message(), "enough");
  EXPECT_EQ(Stop("j", "again").status(), absl::FailedPreconditionError("job j is over: stopped"));
}

TEST_F(CoordinatorTest, AStoppedJobDismissesItsNodesWhenAllWorkersHaveStopped) {
  SendFrom(a_, Joining("a"));
  SendFrom(b_, Joining("b"));
  ASSERT_TRUE(Stop("j", "enough").ok());
  EXPECT_THAT(SendFrom(b_, ReadyFor(0)), ElementsAre("stop r0"));
  EXPECT_EQ(coordinator_->num_open_jobs(), 1);
  EXPECT_THAT(SendFrom(b_, Beating()), ElementsAre("heard"));  // the heartbeat renews the lease
  SendFrom(a_, ReadyFor(0));
  EXPECT_THAT(b_.Received(), ElementsAre("dismiss STOPPED", "end"));
  EXPECT_EQ(coordinator_->num_open_jobs(), 0);
}

TEST_F(CoordinatorTest, NoRoundBeginsAfterTheCoordinatorsOwnAgentLeaves) {
  FakePeer host(/*in_process=*/true);
  SendFrom(host, Joining("here", "j", 1, 2));
  SendFrom(a_, Joining("a", "j", 1, 2));
  a_.Received();
  proto::AgentMessage leaving = Leaving();
  leaving.mutable_leave()->set_workers_gone(false);
  SendFrom(host, leaving);
  EXPECT_THAT(a_.Received(), ElementsAre("stop r0"));
  EXPECT_THAT(a_.last().stop().reason(), HasSubstr("the agent that hosts the coordinator is leaving"));
  EXPECT_THAT(SendFrom(a_, ReadyFor(0)), IsEmpty());
  EXPECT_THAT(SendFrom(c_, Joining("c", "new")), ElementsAre("dismiss COORDINATOR_ENDED", "end"));
  SendFrom(host, Leaving());
  EXPECT_THAT(a_.Received(), ElementsAre("report r0", "dismiss COORDINATOR_ENDED", "end"));
}

TEST_F(CoordinatorTest, ATokenAuthorizesReportGone) {
  proto::AgentMessage join = Joining("b", "j", 1, 2);
  join.mutable_join()->set_gone_token("secret");
  SendFrom(a_, Joining("a", "j", 1, 2));
  SendFrom(b_, join);
  HangUp(b_);
  SendFrom(a_, ReadyFor(0));
  EXPECT_EQ(coordinator_->ReportGone("j", NodeId("b"), "guess").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(coordinator_->ReportGone("j", NodeId("a"), "").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(coordinator_->ReportGone("k", NodeId("b"), "secret").code(), absl::StatusCode::kNotFound);
  a_.Received();
  EXPECT_TRUE(coordinator_->ReportGone("j", NodeId("b"), "secret").ok());
  EXPECT_EQ(coordinator_->Status().at("jobs").at(0).at("nodes").as_array().size(), 1u);
  EXPECT_EQ(coordinator_->ReportGone("j", NodeId("b"), "secret").code(), absl::StatusCode::kNotFound);
}

TEST_F(CoordinatorTest, ARejoiningAgentIsInTheRoundThatWaitedForItsWorkers) {
  proto::AgentMessage join = Joining("b", "j", 1, 2);
  join.mutable_join()->set_gone_token("secret");
  SendFrom(a_, Joining("a", "j", 1, 2));
  SendFrom(b_, join);
  HangUp(b_);
  SendFrom(a_, ReadyFor(0));
  join.mutable_join()->set_node_id("b2");
  join.mutable_join()->set_previous_node_id("b");
  join.mutable_join()->set_previous_gone_token("secret");
  EXPECT_THAT(SendFrom(c_, join), ElementsAre("welcome 15000", "start r1 node1/2"));
}

TEST_F(CoordinatorTest, ARejoiningAgentReportsItsPreviousNodeGone) {
  proto::AgentMessage join = Joining("b", "j", 2, 2);
  join.mutable_join()->set_gone_token("secret");
  SendFrom(a_, Joining("a", "j", 2, 2));
  SendFrom(b_, join);
  HangUp(b_);
  SendFrom(a_, ReadyFor(0));
  join.mutable_join()->set_node_id("b2");
  join.mutable_join()->set_previous_node_id("b");
  join.mutable_join()->set_previous_gone_token("secret");
  EXPECT_THAT(SendFrom(c_, join), ElementsAre("welcome 15000", "start r1 node1/2"));
}

}  // namespace
}  // namespace ddprun
