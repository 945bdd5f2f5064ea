#include "rendezvous/coordinator/round_codec.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/value_codec.h"
#include "proto/versions.h"
#include "rendezvous/core/failure_aggregator.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr TimePoint kNow{seconds(1000)};

proto::Join GoodJoin() {
  proto::Join join;
  join.set_protocol(kProtocolVersion);
  join.set_run_id("j");
  join.set_node_id("n0/12/ab");
  join.set_host("n0");
  join.set_addr("10.0.0.1");
  join.set_store_port(4711);
  join.set_nproc(8);
  join.set_role("trainer");
  return join;
}

TEST(RoundCodecTest, DecodesAJoin) {
  const absl::StatusOr<NodeInfo> node = DecodeNodeInfo(GoodJoin());
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->id, NodeId("n0/12/ab"));
  EXPECT_EQ(node->addr, "10.0.0.1");
  EXPECT_EQ(node->store_port, 4711);
  EXPECT_EQ(node->nproc, 8);
  EXPECT_EQ(node->role, "trainer");
  EXPECT_FALSE(node->requested_rank.has_value());
}

TEST(RoundCodecTest, DecodesARequestedRank) {
  proto::Join join = GoodJoin();
  join.set_has_node_rank(true);
  join.set_node_rank(0);
  const absl::StatusOr<NodeInfo> node = DecodeNodeInfo(join);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->requested_rank, 0);
}

TEST(RoundCodecTest, DecodesTheLastPlace) {
  EXPECT_FALSE(DecodeNodeInfo(GoodJoin())->last.has_value());
  proto::Join join = GoodJoin();
  join.mutable_last()->set_round(3);
  join.mutable_last()->set_group_rank(1);
  join.mutable_last()->set_first_rank(8);
  join.mutable_last()->set_ran_ms(7000);
  const LastPlace place = *DecodeNodeInfo(join)->last;
  EXPECT_EQ(place.round, Round(3));
  EXPECT_EQ(place.rank, GroupRank(1));
  EXPECT_EQ(place.first_rank, Rank(8));
  EXPECT_EQ(place.ran, seconds(7));
  EXPECT_FALSE(place.step.has_value());
  join.mutable_last()->set_step(500);
  EXPECT_EQ(DecodeNodeInfo(join)->last->step, 500);
}

TEST(RoundCodecTest, InvalidJoinsAreErrors) {
  const std::vector<std::pair<std::function<void(proto::Join&)>, const char*>> cases = {
      {[](auto& j) { j.set_protocol(kProtocolVersion + 1); }, "start the same ddprun on all nodes"},
      {[](auto& j) { j.clear_run_id(); }, "run_id is empty"},
      {[](auto& j) { j.set_coordinator_port(65536); }, "coordinator_port is 65536"},
      {[](auto& j) { j.mutable_last()->set_round(-1); }, "round is -1"},
      {[](auto& j) { j.mutable_last()->set_round(int64_t{1} << 40); }, "round is 1099511627776"},
      {[](auto& j) { j.mutable_last()->set_group_rank(-1); }, "group_rank is -1"},
      {[](auto& j) { j.mutable_last()->set_first_rank(-1); }, "first_rank is -1"},
      {[](auto& j) { j.mutable_last()->set_step(-1); }, "step is -1"},
      {[](auto& j) { j.mutable_last()->set_ran_ms(-1); }, "ran_ms is -1"},
      {[](auto& j) { j.set_run_id(std::string(257, 'x')); }, "run_id has 257 bytes; at most 256 are allowed"},
      {[](auto& j) { j.clear_node_id(); }, "node_id is empty"},
      {[](auto& j) { j.set_host(std::string(257, 'x')); }, "host has 257 bytes"},
      {[](auto& j) { j.set_run_id("j\n"); }, "run_id has a control character"},
      {[](auto& j) { j.set_node_id(std::string("n0") + '\0'); }, "node_id has a control character"},
      {[](auto& j) { j.set_host("n0\nddprun: job j1: succeeded"); }, "host has a control character"},
      {[](auto& j) { j.set_addr("10.0.0.1\r"); }, "addr has a control character"},
      {[](auto& j) { j.set_role("\x1b[2Jtrainer"); }, "role has a control character"},
      {[](auto& j) { j.set_role("\x7f"); }, "role has a control character"},
      {[](auto& j) { j.set_role("\xc2\x9b 2J"); }, "role has a control character"},
      {[](auto& j) { j.set_store_port(0); }, "store_port is 0, expected 1 to 65535"},
      {[](auto& j) { j.set_store_port(65536); }, "store_port is 65536"},
      {[](auto& j) { j.set_nproc(0); }, "nproc is 0"},
      {[](auto& j) { j.set_stop_timeout_ms(-1); }, "stop_timeout_ms is -1"},
      {[](auto& j) { j.set_gone_token(std::string(65, 'x')); },
       "gone_token has 65 bytes; at most 64 are allowed"},
      {[](auto& j) {
         j.set_has_node_rank(true);
         j.set_node_rank(-1);
       },
       "node_rank is -1"},
  };
  for (const auto& [modify, text] : cases) {
    proto::Join join = GoodJoin();
    modify(join);
    const absl::Status status = DecodeNodeInfo(join).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

TEST(RoundCodecTest, NamesMayBeNonAscii) {
  proto::Join join = GoodJoin();
  join.set_role("entra\u00eeneur \u00a0\u8a13\u7df4");
  ASSERT_TRUE(DecodeNodeInfo(join).ok());
  EXPECT_EQ(DecodeNodeInfo(join)->role, join.role());
}

TEST(RoundCodecTest, ReplacesLineBreaksInNames) {
  proto::Join join = GoodJoin();
  join.add_expected_hosts("n1\nforged");
  EXPECT_EQ(DecodeExpectedHosts(join), std::vector<std::string>{"n1 forged"});
  proto::Failure failure;
  failure.set_host("n0\r\n");
  failure.set_role("a\u0085b");
  EXPECT_EQ(DecodeFailure(failure, kNow).host, "n0  ");
  EXPECT_EQ(DecodeFailure(failure, kNow).role, "a b");
}

template <typename T>
T As(const proto::AgentMessage& message) {
  const CoordinatorEvent event = DecodeAgentMessage(7, message, kNow);
  EXPECT_EQ(std::get<PeerSaid>(event).peer, 7u);
  return std::get<T>(std::get<PeerSaid>(event).message);
}

absl::Status Misspoken(const proto::AgentMessage& message) {
  return std::get<PeerMisspoke>(DecodeAgentMessage(7, message, kNow)).why;
}

TEST(RoundCodecTest, DecodesMessagesOfJoinedNodes) {
  proto::AgentMessage message;
  message.mutable_heartbeat();
  EXPECT_FALSE(As<NodeHeard>(message).progress.has_value());
  message.mutable_workers_succeeded()->set_round(7);
  EXPECT_EQ(As<WorkersSucceeded>(message).round, Round(7));
  message.mutable_ready()->set_round(7);
  message.mutable_ready()->set_store_port(99);
  EXPECT_EQ(As<NodeReady>(message).store_port, 99);
  message.mutable_leave()->set_reason("why\n");
  EXPECT_EQ(As<NodeLeaving>(message).reason, "why ");
  message.mutable_leave()->set_reason("why");
  message.mutable_leave()->set_workers_gone(true);
  EXPECT_EQ(As<NodeLeft>(message).reason, "why");
  message.mutable_snapshot_taken()->set_round(7);
  message.mutable_snapshot_taken()->set_step(30);
  EXPECT_EQ(As<SnapshotTaken>(message).step, 30);
}

TEST(RoundCodecTest, DecodesNotices) {
  proto::AgentMessage message;
  proto::Preempted& preempted = *message.mutable_preempted();
  preempted.set_left_ms(60'000);
  preempted.set_reason("SIGUSR1\n");
  const NoticeGiven notice = As<NoticeGiven>(message);
  EXPECT_EQ(notice.left, seconds(60));
  EXPECT_EQ(notice.back_in, std::nullopt);
  EXPECT_EQ(notice.reason, "SIGUSR1 ");
  preempted.set_back_in_ms(0);
  EXPECT_EQ(As<NoticeGiven>(message).back_in, seconds(0));
  preempted.set_left_ms(-1);
  EXPECT_THAT(std::string(Misspoken(message).message()), HasSubstr("left_ms is -1, expected 0 to"));
}

TEST(RoundCodecTest, DecodesTheProgressInAHeartbeat) {
  proto::AgentMessage message;
  proto::Heartbeat& heartbeat = *message.mutable_heartbeat();
  EXPECT_FALSE(As<NodeHeard>(message).progress.has_value());
  heartbeat.set_round(3);
  heartbeat.set_phase("loading");
  EXPECT_EQ(As<NodeHeard>(message).progress, (Progress{.round = Round(3), .phase = "loading"}));
  heartbeat.set_step(0);
  EXPECT_EQ(As<NodeHeard>(message).progress, (Progress{.round = Round(3), .step = 0, .phase = "loading"}));
}

TEST(RoundCodecTest, DecodesFailuresInWorkersFailedAndReady) {
  const Failure failure{.rank = Rank(3), .exit = Exited{2}, .failed_at = kNow - milliseconds(4), .step = 6};
  proto::AgentMessage message;
  message.mutable_workers_failed()->set_round(7);
  *message.mutable_workers_failed()->mutable_failure() = EncodeFailure(failure, kNow);
  EXPECT_EQ(As<WorkersFailed>(message).failure, failure);
  message.mutable_ready()->set_store_port(1);
  for (int i = 0; i < 70; ++i) *message.mutable_ready()->add_failures() = EncodeFailure(failure, kNow);
  EXPECT_EQ(As<NodeReady>(message).failures, std::vector<Failure>(64, failure));
}

TEST(RoundCodecTest, TheReportOfALargeJobIsBounded) {
  FailureAggregator losses;
  for (int node = 0; node < 10'000; ++node) {
    proto::Failure failure;
    for (auto* text : {failure.mutable_cause(), failure.mutable_exception(), failure.mutable_stderr_tail()}) {
      *text = std::string(1 << 14, static_cast<char>('a' + node % 20));
    }
    for (int i = 0; i < 20; ++i) failure.add_evidence(std::string(1 << 12, 'x'));
    failure.set_rank(node);
    losses.Told(NodeId(absl::StrCat(node)), {DecodeFailure(failure, kNow)});
    losses.Lost(std::string(1 << 11, 'x'));
  }
  const proto::JobReport report = EncodeReport(losses.Report(Round(0)), kNow);
  EXPECT_EQ(report.groups_size(), 16);
  EXPECT_LT(report.ByteSizeLong(), 256u << 10);
  EXPECT_TRUE(proto::JobReport().ParseFromString(report.SerializeAsString()));
}

TEST(RoundCodecTest, IgnoresExpectedHostsBeyondTheLimit) {
  proto::Join join = GoodJoin();
  for (int i = 0; i < 1024; ++i) join.add_expected_hosts(absl::StrCat("n", i));
  EXPECT_EQ(DecodeExpectedHosts(join).size(), 1024u);
  join.add_expected_hosts("one more");
  EXPECT_TRUE(DecodeExpectedHosts(join).empty());
}

TEST(RoundCodecTest, InvalidMessagesAreErrors) {
  proto::AgentMessage message;
  EXPECT_EQ(Misspoken(message).code(), absl::StatusCode::kInvalidArgument);
  message.mutable_ready()->set_round(0);
  EXPECT_THAT(std::string(Misspoken(message).message()), HasSubstr("store_port is 0"));
  *message.mutable_join() = GoodJoin();
  (*message.mutable_join()->mutable_rules())["lease_ms"] = 0;
  EXPECT_THAT(std::string(Misspoken(message).message()),
              HasSubstr("rules of the job: lease_ms is 0, expected 1 to"));
}

TEST(RoundCodecTest, DecodesTheRulesInAJoin) {
  proto::AgentMessage message;
  *message.mutable_join() = GoodJoin();
  EncodeRules({.min_nodes = 2, .max_nodes = 4, .max_restarts = 3}, *message.mutable_join()->mutable_rules());
  const CoordinatorEvent event = DecodeAgentMessage(7, message, kNow);
  const auto& joined = std::get<PeerJoined>(event);
  EXPECT_EQ(joined.run_id, "j");
  EXPECT_EQ(joined.info.id, NodeId("n0/12/ab"));
  EXPECT_EQ(joined.rules, (JobRules{.min_nodes = 2, .max_nodes = 4, .max_restarts = 3}));
}

TEST(RoundCodecTest, EncodesOrders) {
  const Assignment assignment{.round = Round(3),
                              .group_rank = GroupRank(1),
                              .group_world_size = 2,
                              .first_rank = Rank(4),
                              .world_size = 8,
                              .first_role_rank = 5,
                              .role_world_size = 6,
                              .restart_count = 7,
                              .master_addr = "m",
                              .master_port = 9};
  EXPECT_EQ(
      EncodeOrder(Assign{NodeId("a"), assignment, AllJoined{2}}, kNow).ShortDebugString(),
      "start { round: 3 group_rank: 1 group_world_size: 2 first_rank: 4 world_size: 8 first_role_rank: 5 "
      "role_world_size: 6 restart_count: 7 master_addr: \"m\" master_port: 9 reason: \"all 2 nodes joined\" "
      "}");
  EXPECT_EQ(EncodeOrder(StopWorkers{NodeId("a"), Round(3), FailureReported{"r"}}, kNow).ShortDebugString(),
            "stop { round: 3 reason: \"r\" }");
  EXPECT_EQ(EncodeOrder(TellWaiting{NodeId("a"), std::make_shared<const Waiting>(WaitsForNothing{})}, kNow)
                .ShortDebugString(),
            "waiting { text: \"the job is closed\" }");
  EXPECT_EQ(EncodeOrder(Refuse{NodeId("a"), absl::AbortedError("old")}, kNow).ShortDebugString(),
            "refuse { code: 10 message: \"old\" }");
  EXPECT_EQ(EncodeOrder(TakeSnapshot{NodeId("a"), Round(3), NewcomersWait{1}}, kNow).ShortDebugString(),
            "take_snapshot { round: 3 reason: \"1 node joined the running job\" }");
  const auto report = std::make_shared<const JobReport>(
      JobReport{.round = Round(3),
                .groups = {{.first = {.failed_at = kNow - milliseconds(4), .cause = "c"},
                            .count = 2,
                            .ranks = {Rank(1), Rank(2)}}},
                .more_failures = 4,
                .lost_nodes = {"n"},
                .outcome = "o"});
  EXPECT_EQ(
      EncodeOrder(TellReport{NodeId("a"), report}, kNow).ShortDebugString(),
      "report { round: 3 groups { first { exit_code: 1 origin: FAILURE_ORIGIN_OWN age_us: 4000 "
      "cause: \"c\" } count: 2 ranks: 1 ranks: 2 } more_failures: 4 lost_nodes: \"n\" outcome: \"o\" }");
  EXPECT_EQ(
      EncodeOrder(Dismiss{NodeId("a"), Dismissal::kJoinTimeout, Unfit{"late"}}, kNow).ShortDebugString(),
      "dismiss { reason: DISMISS_REASON_JOIN_TIMEOUT message: \"late\" }");
}

}  // namespace
}  // namespace ddprun
