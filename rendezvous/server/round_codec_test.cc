#include "rendezvous/server/round_codec.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/protocol_version.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

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

proto::JobRules GoodRules() {
  proto::JobRules rules;
  rules.set_min_nodes(2);
  rules.set_max_nodes(4);
  rules.set_max_restarts(3);
  rules.set_first_last_call_ms(1);
  rules.set_last_call_ms(2);
  rules.set_join_timeout_ms(3);
  rules.set_lease_ms(4);
  rules.set_drain_timeout_ms(5);
  return rules;
}

TEST(RoundCodecTest, AJoinBecomesANode) {
  const absl::StatusOr<NodeInfo> node = DecodeJoin(GoodJoin(), "192.168.0.9");
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->id, "n0/12/ab");
  EXPECT_EQ(node->addr, "10.0.0.1");
  EXPECT_EQ(node->store_port, 4711);
  EXPECT_EQ(node->nproc, 8);
  EXPECT_EQ(node->role, "trainer");
  EXPECT_FALSE(node->requested_rank.has_value());
}

TEST(RoundCodecTest, TheSeenAddressTakesThePlaceOfNone) {
  proto::Join join = GoodJoin();
  join.clear_addr();
  join.set_has_node_rank(true);
  join.set_node_rank(0);
  const absl::StatusOr<NodeInfo> node = DecodeJoin(join, "192.168.0.9");
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->addr, "192.168.0.9");
  EXPECT_EQ(node->requested_rank, 0);
}

TEST(RoundCodecTest, BadJoinsAreNamed) {
  const std::vector<std::pair<std::function<void(proto::Join&)>, const char*>> cases = {
      {[](auto& j) { j.set_protocol(kProtocolVersion + 1); }, "start the same ddprun on all nodes"},
      {[](auto& j) { j.clear_run_id(); }, "run_id is empty"},
      {[](auto& j) { j.set_run_id(std::string(257, 'x')); }, "run_id has 257 bytes, at most 256"},
      {[](auto& j) { j.clear_node_id(); }, "node_id is empty"},
      {[](auto& j) { j.set_host(std::string(257, 'x')); }, "host has 257 bytes"},
      {[](auto& j) { j.set_store_port(0); }, "store_port is 0, expected 1 to 65535"},
      {[](auto& j) { j.set_store_port(65536); }, "store_port is 65536"},
      {[](auto& j) { j.set_nproc(0); }, "nproc is 0"},
      {[](auto& j) {
         j.set_has_node_rank(true);
         j.set_node_rank(-1);
       },
       "node_rank is -1"},
  };
  for (const auto& [spoil, text] : cases) {
    proto::Join join = GoodJoin();
    spoil(join);
    const absl::Status status = DecodeJoin(join, "").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

TEST(RoundCodecTest, RulesKeepTheirPlaces) {
  const absl::StatusOr<RoundPolicy> policy = DecodeRules(GoodRules());
  ASSERT_TRUE(policy.ok()) << policy.status();
  EXPECT_EQ(*policy, (RoundPolicy{.min_nodes = 2,
                                  .max_nodes = 4,
                                  .max_restarts = 3,
                                  .first_last_call = milliseconds(1),
                                  .last_call = milliseconds(2),
                                  .join_timeout = milliseconds(3),
                                  .lease = milliseconds(4),
                                  .drain_timeout = milliseconds(5)}));
}

TEST(RoundCodecTest, BadRulesAreNamed) {
  const std::vector<std::pair<std::function<void(proto::JobRules&)>, const char*>> cases = {
      {[](auto& r) { r.set_min_nodes(0); }, "min_nodes is 0"},
      {[](auto& r) { r.set_max_nodes(1); }, "max_nodes is 1, expected 2 to"},
      {[](auto& r) { r.set_max_restarts(-1); }, "max_restarts is -1"},
      {[](auto& r) { r.set_lease_ms(0); }, "lease_ms is 0"},
      {[](auto& r) { r.set_join_timeout_ms(INT64_MAX); }, "join_timeout_ms is 9223372036854775807"},
      {[](auto& r) { r.set_drain_timeout_ms(-1); }, "drain_timeout_ms is -1"},
  };
  for (const auto& [spoil, text] : cases) {
    proto::JobRules rules = GoodRules();
    spoil(rules);
    const absl::Status status = DecodeRules(rules).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
}

TEST(RoundCodecTest, MessagesBecomeEventsOfTheirSender) {
  proto::AgentMessage message;
  message.mutable_heartbeat();
  EXPECT_EQ(std::get<NodeHeard>(*DecodeEvent(message, "a")).node, "a");
  message.mutable_workers_succeeded()->set_round(7);
  EXPECT_EQ(std::get<WorkersSucceeded>(*DecodeEvent(message, "a")).round, Round(7));
  message.mutable_ready()->set_round(7);
  message.mutable_ready()->set_store_port(99);
  EXPECT_EQ(std::get<NodeReady>(*DecodeEvent(message, "a")).store_port, 99);
  message.mutable_leave()->set_reason("why");
  EXPECT_EQ(std::get<NodeLeft>(*DecodeEvent(message, "a")).reason, "why");
  message.mutable_workers_failed()->set_cause(std::string(1 << 19, 'x'));
  EXPECT_EQ(std::get<WorkersFailed>(*DecodeEvent(message, "a")).cause, std::string(4096, 'x'));
}

TEST(RoundCodecTest, WhatIsNoEventIsAnError) {
  proto::AgentMessage message;
  EXPECT_EQ(DecodeEvent(message, "a").status().code(), absl::StatusCode::kInvalidArgument);
  *message.mutable_join() = GoodJoin();
  EXPECT_THAT(std::string(DecodeEvent(message, "a").status().message()), HasSubstr("a second join"));
  message.mutable_ready()->set_round(0);
  EXPECT_THAT(std::string(DecodeEvent(message, "a").status().message()), HasSubstr("store_port is 0"));
}

TEST(RoundCodecTest, EffectsBecomeMessagesToTheirNode) {
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
  const std::optional<Addressed> start = EncodeEffect(Assign{"a", assignment, "all joined"});
  ASSERT_TRUE(start.has_value());
  EXPECT_EQ(start->node, "a");
  EXPECT_FALSE(start->last);
  EXPECT_EQ(
      start->message.ShortDebugString(),
      "start { round: 3 group_rank: 1 group_world_size: 2 first_rank: 4 world_size: 8 first_role_rank: 5 "
      "role_world_size: 6 restart_count: 7 master_addr: \"m\" master_port: 9 reason: \"all joined\" }");
  EXPECT_EQ(EncodeEffect(StopWorkers{"a", Round(3), "r"})->message.ShortDebugString(),
            "stop { round: 3 reason: \"r\" }");
  EXPECT_EQ(EncodeEffect(TellWaiting{"a", "t"})->message.ShortDebugString(), "waiting { text: \"t\" }");
  EXPECT_EQ(EncodeEffect(Refuse{"a", absl::AbortedError("old")})->message.ShortDebugString(),
            "refuse { code: 10 message: \"old\" }");
  const std::optional<Addressed> bye = EncodeEffect(Dismiss{"a", absl::DeadlineExceededError("late")});
  EXPECT_TRUE(bye->last);
  EXPECT_EQ(bye->message.ShortDebugString(), "dismiss { code: 4 message: \"late\" }");
  EXPECT_FALSE(EncodeEffect(Note{"event", "reason"}).has_value());
}

}  // namespace
}  // namespace ddprun
