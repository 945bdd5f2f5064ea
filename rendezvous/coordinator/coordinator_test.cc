#include "rendezvous/coordinator/coordinator_fixture.h"

namespace ddprun {
namespace {

TEST_F(CoordinatorTest, NodesAreWelcomedAndARoundStartsWhenAllHaveJoined) {
  EXPECT_THAT(SendFrom(a_, Joining("a")), ElementsAre("welcome 15000"));
  EXPECT_THAT(SendFrom(b_, Joining("b")), ElementsAre("welcome 15000", "start r0 node1/2"));
  EXPECT_THAT(a_.Received(), ElementsAre("start r0 node0/2"));
  // The join has no address, so the coordinator uses the address of the connection.
  EXPECT_EQ(a_.last().start().master_addr(), "10.0.0.7");
  EXPECT_EQ(a_.last().start().master_port(), 4000);
}

TEST_F(CoordinatorTest, EveryHeartbeatIsAnswered) {
  SendFrom(a_, Joining("a"));
  EXPECT_THAT(SendFrom(a_, Beating()), ElementsAre("heard"));
  EXPECT_THAT(SendFrom(a_, Beating()), ElementsAre("heard"));
}

TEST_F(CoordinatorTest, TheAgentInTheCoordinatorsProcessNeedsNoHeartbeats) {
  FakePeer local(/*in_process=*/true);
  EXPECT_THAT(SendFrom(local, Joining("a")), ElementsAre("welcome 0"));
}

TEST_F(CoordinatorTest, AnAgentWhoseFirstMessageIsNotAJoinIsRejected) {
  EXPECT_THAT(SendFrom(a_, Beating()), ElementsAre("dismiss REJECTED", "end"));
  EXPECT_THAT(SendFrom(a_, Joining("a")), IsEmpty());  // ignored, because the agent was rejected
  HangUp(a_);
  EXPECT_EQ(coordinator_->num_peers(), 0);
}

TEST_F(CoordinatorTest, AConnectionThatNeverJoinsIsEvicted) {
  Limit({.join = milliseconds(1)});
  a_.id = coordinator_->Attach(&a_);
  EXPECT_THAT(Await(a_), ElementsAre("dismiss EVICTED", "end"));
  EXPECT_THAT(a_.last().dismiss().message(), HasSubstr("10.0.0.7 connected, but sent no join"));
}

TEST_F(CoordinatorTest, ARejectionNamesTheConflictingOption) {
  SendFrom(a_, Joining("a"));
  EXPECT_THAT(SendFrom(b_, Joining("b", "j", 1, 3)), ElementsAre("dismiss REJECTED", "end"));
  EXPECT_THAT(b_.last().dismiss().message(),
              HasSubstr("host-b has --nnodes=1:3, but the job has --nnodes=2:2"));
  EXPECT_THAT(SendFrom(c_, Joining("c")), ElementsAre("welcome 15000", "start r0 node1/2"));
}

TEST_F(CoordinatorTest, ANodeIdInUseIsRejected) {
  SendFrom(a_, Joining("a"));
  EXPECT_THAT(SendFrom(b_, Joining("a")), ElementsAre("dismiss REJECTED", "end"));
  HangUp(b_);
  EXPECT_THAT(SendFrom(a_, Beating()), ElementsAre("heard"));  // the first agent is still in the job
}

TEST_F(CoordinatorTest, JobsAreIndependent) {
  SendFrom(a_, Joining("a", "one"));
  EXPECT_THAT(SendFrom(b_, Joining("b", "two")), ElementsAre("welcome 15000"));
  EXPECT_EQ(num_jobs(), 2u);
}

TEST_F(CoordinatorTest, ANodeThatDisconnectsIsLost) {
  SendFrom(a_, Joining("a"));
  SendFrom(b_, Joining("b"));
  a_.Received();
  HangUp(b_);
  EXPECT_THAT(a_.Received(), ElementsAre("stop r0"));
  EXPECT_THAT(a_.last().stop().reason(), HasSubstr("host-b (b) is lost: it hung up"));
}

TEST_F(CoordinatorTest, ASilentNodeIsEvictedWhenItsLeaseExpires) {
  proto::AgentMessage join = Joining("a");
  (*join.mutable_join()->mutable_rules())["lease_ms"] = 3;
  SendFrom(a_, join);
  EXPECT_THAT(Await(a_), ElementsAre("dismiss EVICTED", "end"));
  EXPECT_THAT(a_.last().dismiss().message(), HasSubstr("has not been heard from for 3 ms"));
}

TEST_F(CoordinatorTest, AMessageOfUnknownKindRejectsOnlyItsSender) {
  SendFrom(a_, Joining("a"));
  SendFrom(b_, Joining("b"));
  a_.Received();
  EXPECT_THAT(SendFrom(b_, proto::AgentMessage()), ElementsAre("dismiss REJECTED", "end"));
  EXPECT_THAT(a_.Received(), ElementsAre("stop r0"));
  EXPECT_THAT(SendFrom(b_, Beating()), IsEmpty());
  EXPECT_THAT(SendFrom(a_, Beating()), ElementsAre("heard"));
}

TEST_F(CoordinatorTest, PostedHandlersMayOutliveTheCoordinator) {
  const std::weak_ptr<Coordinator> weak = coordinator_->weak();
  EXPECT_EQ(weak.lock().get(), coordinator_.get());
  a_.id = coordinator_->Attach(&a_);  // starts the timer
  coordinator_.reset();
  EXPECT_TRUE(weak.expired());
  io_.poll();
}

TEST_F(CoordinatorTest, StatusListsNodes) {
  SendFrom(a_, Joining("a"));
  SendFrom(b_, Joining("b"));
  const boost::json::object status = coordinator_->Status();
  EXPECT_EQ(status.at("service"), "ddprun");
  const boost::json::object& job = status.at("jobs").at(0).as_object();
  EXPECT_EQ(job.at("run_id"), "j");
  EXPECT_EQ(job.at("state"), "running");
  EXPECT_EQ(job.at("round"), 0);
  const boost::json::object& node = job.at("nodes").at(1).as_object();
  EXPECT_EQ(node.at("host"), "host-b");
  EXPECT_EQ(node.at("group_rank"), 1);
  EXPECT_GT(node.at("lease_left_ms").as_int64(), 0);
}

proto::AgentMessage Failing(int round, const std::string& cause) {
  proto::AgentMessage message;
  message.mutable_workers_failed()->set_round(round);
  message.mutable_workers_failed()->mutable_failure()->set_cause(cause);
  return message;
}

proto::AgentMessage Stopped(int round) {
  proto::AgentMessage message;
  message.mutable_ready()->set_round(round);
  message.mutable_ready()->set_store_port(4001);
  return message;
}

TEST_F(CoordinatorTest, AllNodesReceiveTheSameReportObject) {
  SendFrom(a_, Joining("a"));
  SendFrom(b_, Joining("b"));
  a_.Received();
  SendFrom(a_, Failing(0, "rank 0 failed"));
  SendFrom(a_, Stopped(0));
  EXPECT_THAT(SendFrom(b_, Stopped(0)), ElementsAre("stop r0", "report r0", "start r1 node1/2"));
  const SharedMessage report = b_.LastOf(proto::CoordinatorMessage::kReport);
  ASSERT_NE(report, nullptr);
  EXPECT_EQ(report->report().groups(0).first().cause(), "rank 0 failed");
  EXPECT_EQ(report->report().outcome(), "restart 1 of 1");
  EXPECT_EQ(a_.LastOf(proto::CoordinatorMessage::kReport), report);  // one object, encoded once
}

TEST_F(CoordinatorTest, ADrainedNodeIsDismissedWithTheReason) {
  SendFrom(a_, Joining("a", "j", 1, 2));
  SendFrom(b_, Joining("b", "j", 1, 2));
  a_.Received();
  EXPECT_THAT(*Drain("", "host-b", "maintenance"), HasSubstr("node host-b (b) will be taken out once"));
  EXPECT_THAT(SendFrom(a_, Stopped(0)), ElementsAre("stop r0"));
  EXPECT_THAT(SendFrom(b_, Stopped(0)), ElementsAre("stop r0", "dismiss DRAINED", "end"));
  EXPECT_THAT(b_.last().dismiss().message(), HasSubstr("maintenance"));
  EXPECT_THAT(a_.Received(), ElementsAre("start r1 node0/1"));
}

TEST_F(CoordinatorTest, AWaitingNodeIsDrainedImmediatelyAndItsJobIsForgotten) {
  SendFrom(a_, Joining("a"));
  EXPECT_EQ(*Drain("j", "a", "enough"), "node host-a (a) has been taken out");
  EXPECT_THAT(a_.Received(), ElementsAre("dismiss DRAINED", "end"));
  EXPECT_EQ(num_jobs(), 0u);
}

TEST_F(CoordinatorTest, OperatorErrorsNameJobsAndNodes) {
  EXPECT_EQ(Stop("", "r").status(), absl::NotFoundError("the coordinator has no jobs"));
  FakePeer local(/*in_process=*/true);
  SendFrom(local, Joining("here", "j", 3, 4));
  SendFrom(a_, Joining("a", "j", 3, 4));
  proto::AgentMessage twin = Joining("a2", "j", 3, 4);
  twin.mutable_join()->set_host("host-a");
  SendFrom(b_, twin);
  const auto error = [this](const std::string& job, const std::string& node) {
    return Drain(job, node, "r").status().ToString();
  };
  EXPECT_EQ(error("j", "n7"), "NOT_FOUND: there is no node n7; known hosts: host-a, host-here");
  EXPECT_EQ(error("j", "host-a"), "INVALID_ARGUMENT: 2 nodes are on host host-a; give the id of one: a, a2");
  EXPECT_EQ(error("j", "here"),
            "FAILED_PRECONDITION: node host-here hosts the coordinator and cannot be taken out; stop the job "
            "instead");
  EXPECT_EQ(error("k", "a"), "NOT_FOUND: there is no job k; known jobs: j");
  SendFrom(c_, Joining("c", "other"));
  EXPECT_EQ(error("", "a"), "INVALID_ARGUMENT: name the job; known jobs: j, other");
  EXPECT_THAT(a_.Received(), IsEmpty());
}

TEST_F(CoordinatorTest, StacksAreAskedOfTheNodesOfTheRound) {
  std::optional<absl::StatusOr<std::string>> text;
  const auto ask = [&](std::optional<Rank> rank) {
    coordinator_->Stacks("", rank, /*native=*/true,
                         [&](absl::StatusOr<std::string> answer) { text = answer; });
  };
  ask({});
  EXPECT_EQ(text->status(), absl::NotFoundError("the coordinator has no jobs"));
  SendFrom(a_, Joining("a"));
  ask({});
  EXPECT_EQ(text->status(), absl::FailedPreconditionError("no workers of job j run"));
  SendFrom(b_, Joining("b"));
  ask(Rank(9));
  EXPECT_THAT(text->status().ToString(),
              HasSubstr("NOT_FOUND: no rank 9 runs: the ranks of the round are 0 to "));
  a_.Received();
  b_.Received();
  text.reset();
  ask({});
  EXPECT_THAT(a_.Received(), ElementsAre("stacks"));
  EXPECT_THAT(b_.Received(), ElementsAre("stacks"));
  EXPECT_TRUE(a_.last().collect_stacks().native());
  proto::AgentMessage answer;
  answer.mutable_stacks()->set_request(a_.last().collect_stacks().request());
  answer.mutable_stacks()->add_missing("gdb is not installed");
  SendFrom(a_, answer);
  EXPECT_FALSE(text.has_value());
  coordinator_->Detach(b_.id, "reset");
  EXPECT_THAT(text->value(), HasSubstr("host-a: gdb is not installed\n"));
  EXPECT_THAT(text->value(), HasSubstr("host-b: no answer: its agent has disconnected\n"));
}

TEST_F(CoordinatorTest, EventsAreInOrder) {
  SendFrom(a_, Joining("a"));
  SendFrom(b_, Joining("b"));
  const absl::StatusOr<std::string> all = coordinator_->Events("", 0);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(*all, ::testing::ContainsRegex("\"seq\":1,.*\"event\":\"node_joined\".*host-a.*\n"
                                             ".*\"seq\":2,.*\"event\":\"node_joined\".*host-b.*\n"
                                             ".*\"seq\":3,.*\"event\":\"round_sealed\".*\n"));
  EXPECT_EQ(*coordinator_->Events("j", 3), "");
  HangUp(b_);
  EXPECT_THAT(*coordinator_->Events("j", 3), HasSubstr("\"seq\":4,"));
  EXPECT_EQ(coordinator_->Events("k", 0).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CoordinatorTest, TheLastEventsOfAClosedJobAreKept) {
  Limit({.events_of_closed = 2});
  SendFrom(a_, Joining("a", "j", 1, 1));
  ASSERT_TRUE(Stop("j", "enough").ok());
  SendFrom(a_, ReadyFor(0));
  EXPECT_THAT(*coordinator_->Events("j", 0), ::testing::StartsWith("{\"seq\":4,"));
}

TEST_F(CoordinatorTest, StatusReportsProgress) {
  SendFrom(a_, Joining("a"));
  SendFrom(b_, Joining("b"));
  proto::AgentMessage beat = Beating();
  beat.mutable_heartbeat()->set_step(57);
  beat.mutable_heartbeat()->set_phase("training");
  SendFrom(a_, beat);
  const boost::json::object status = coordinator_->Status();
  const boost::json::object& job = status.at("jobs").at(0).as_object();
  EXPECT_EQ(job.at("furthest_step"), 57);
  EXPECT_EQ(job.at("waiting"), "");
  const boost::json::object& a = job.at("nodes").at(0).as_object();
  EXPECT_EQ(a.at("first_rank"), 0);
  EXPECT_EQ(a.at("step"), 57);
  EXPECT_EQ(a.at("phase"), "training");
  EXPECT_TRUE(job.at("nodes").at(1).at("step").is_null());
}

// Of 80 ranks, 64 are listed: those with the longest times of their own, by rank.
TEST_F(CoordinatorTest, StatusListsTheStepTimesOfTheSlowestRanks) {
  constexpr int kWorkers = 40, kListed = 64;
  for (const auto& [peer, node] : {std::pair(&a_, "a"), std::pair(&b_, "b")}) {
    proto::AgentMessage join = Joining(node);
    join.mutable_join()->set_nproc(kWorkers);
    SendFrom(*peer, join);
  }
  // The own times decrease from one rank to the next, except for the last one.
  for (FakePeer* const peer : {&a_, &b_}) {
    proto::AgentMessage message;
    message.mutable_step_times()->set_round(0);
    for (int i = 0; i < kWorkers; ++i) {
      const int rank = peer == &a_ ? i : kWorkers + i;
      proto::StepTimes::Worker& worker = *message.mutable_step_times()->add_workers();
      worker.set_local_rank(i);
      worker.set_step_us(100'000);
      worker.set_spread_us(7);
      worker.set_data_us(5);
      worker.set_communication_us(rank == 2 * kWorkers - 1 ? 100 : 1'000 + rank);
    }
    SendFrom(*peer, message);
  }
  const boost::json::object status = coordinator_->Status();
  const boost::json::object& job = status.at("jobs").at(0).as_object();
  EXPECT_EQ(job.at("timed_ranks"), 2 * kWorkers);
  const boost::json::array& listed = job.at("step_times").as_array();
  std::vector<int64_t> ranks, expected;
  for (const boost::json::value& entry : listed) ranks.push_back(entry.at("rank").as_int64());
  for (int rank = 0; rank < kListed - 1; ++rank) expected.push_back(rank);
  expected.push_back(2 * kWorkers - 1);
  EXPECT_EQ(ranks, expected);
  EXPECT_EQ(boost::json::serialize(listed.back()),
            "{\"rank\":79,\"host\":\"host-b\",\"step_us\":100000,\"spread_us\":7,\"data_us\":5,"
            "\"communication_us\":100,\"straggler\":false}");
}

TEST_F(CoordinatorTest, StatusListsMissingNodes) {
  proto::AgentMessage join = Joining("a");
  for (const char* host : {"host-a", "host-b"}) join.mutable_join()->add_expected_hosts(host);
  SendFrom(a_, join);
  const boost::json::object status = coordinator_->Status();
  const boost::json::object& job = status.at("jobs").at(0).as_object();
  EXPECT_EQ(job.at("waiting"), "1/2 nodes joined, waiting for host-b (not heard from)");
  EXPECT_EQ(boost::json::serialize(job.at("missing")),
            "[{\"host\":\"host-b\",\"why\":\"\",\"lost_ms_ago\":null}]");
}

// The number of messages must not grow with the square of the number of nodes.
TEST_F(CoordinatorTest, TenThousandNodesReceiveFewMessages) {
  constexpr int kNodes = 10'000;
  std::deque<FakePeer> peers;
  size_t received = 0;
  const auto send_from_all = [&](auto message_of) {
    for (int i = 0; i < kNodes; ++i) SendFrom(peers[i], message_of(i));
  };
  for (int i = 0; i < kNodes; ++i) peers.emplace_back();
  send_from_all([&](int i) { return Joining(absl::StrCat("n", i), "j", kNodes, kNodes); });
  send_from_all([&](int i) { return i == 0 ? Failing(0, "rank 0 failed") : Beating(); });
  send_from_all([&](int) { return Stopped(0); });
  size_t waiting = 0;
  for (FakePeer& peer : peers) {
    received += peer.count();
    waiting += peer.count(proto::CoordinatorMessage::kWaiting);
    EXPECT_EQ(peer.last().start().round(), 1);
  }
  // Each node receives at most six messages (welcome, start, heard, stop, report and start) and a few waiting
  // notices.
  EXPECT_LE(received - waiting, 6u * kNodes);
  EXPECT_LE(waiting, 60u * kNodes / 10);
}

}  // namespace
}  // namespace ddprun
