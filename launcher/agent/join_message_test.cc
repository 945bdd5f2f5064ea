#include "launcher/agent/join_message.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/value_codec.h"
#include "proto/versions.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;

TEST(JoinMessageTest, DescribesTheNodeAndTheJobRules) {
  LaunchConfig config;
  config.run_id = "j1";
  config.num_local_workers = 8;
  config.role = "trainer";
  config.node_rank = 0;
  config.expected_hosts = {"n1", "n2"};
  config.admission = Admission::kExpected;
  config.min_nodes = 2;
  config.max_nodes = 4;
  config.rules.max_restarts = 3;
  config.rdzv.join_timeout = seconds(60);
  config.rdzv.lease = milliseconds(700);
  config.rules = {.max_restarts = 3,
                  .node_unit = 2,
                  .scale_up = ScaleUp::kAtSnapshot,
                  .snapshot_timeout = seconds(9),
                  .min_uptime = milliseconds(1500),
                  .max_restarts_without_progress = 5};
  const proto::AgentMessage message = JoinMessage(config, {.id = "n1/77/1",
                                                           .host = "n1",
                                                           .address = "10.0.0.1",
                                                           .store_port = 4711,
                                                           .first_last_call = seconds(1),
                                                           .last_call = seconds(2),
                                                           .stop_timeout = seconds(45)});
  ASSERT_TRUE(message.has_join());
  const proto::Join& join = message.join();
  EXPECT_EQ(join.protocol(), kProtocolVersion);
  EXPECT_EQ(join.run_id(), "j1");
  EXPECT_EQ(join.node_id(), "n1/77/1");
  EXPECT_EQ(join.host(), "n1");
  EXPECT_EQ(join.addr(), "10.0.0.1");
  EXPECT_EQ(join.store_port(), 4711);
  EXPECT_EQ(join.nproc(), 8);
  EXPECT_EQ(join.role(), "trainer");
  EXPECT_TRUE(join.has_node_rank());
  EXPECT_EQ(join.node_rank(), 0);
  EXPECT_THAT(join.expected_hosts(), ElementsAre("n1", "n2"));
  EXPECT_EQ(*DecodeRules(join.rules()), (JobRules{.min_nodes = 2,
                                                  .max_nodes = 4,
                                                  .max_restarts = 3,
                                                  .first_last_call = seconds(1),
                                                  .last_call = seconds(2),
                                                  .join_timeout = seconds(60),
                                                  .lease = milliseconds(700),
                                                  .node_unit = 2,
                                                  .scale_up = ScaleUp::kAtSnapshot,
                                                  .snapshot_timeout = seconds(9),
                                                  .min_uptime = milliseconds(1500),
                                                  .max_restarts_without_progress = 5,
                                                  .admission = Admission::kExpected}));
  EXPECT_EQ(join.stop_timeout_ms(), 45'000);
}

TEST(JoinMessageTest, SaysWhereTheNodeWasLast) {
  JoiningNode node;
  EXPECT_FALSE(JoinMessage(LaunchConfig(), node).join().has_last());
  node.last.emplace().assignment = {.round = Round(3), .group_rank = GroupRank(1), .first_rank = Rank(8)};
  node.last->ran = seconds(7);
  const proto::LastPlace without_step = JoinMessage(LaunchConfig(), node).join().last();
  EXPECT_EQ(without_step.ShortDebugString(), "round: 3 group_rank: 1 first_rank: 8 ran_ms: 7000");
  node.last->step = 500;
  EXPECT_EQ(JoinMessage(LaunchConfig(), node).join().last().step(), 500);
}

TEST(JoinMessageTest, NodeRankIsOptional) {
  EXPECT_FALSE(JoinMessage(LaunchConfig(), {}).join().has_node_rank());
}

}  // namespace
}  // namespace ddprun
