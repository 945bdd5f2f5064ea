#include "launcher/ctl/status_table.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(StatusTableTest, ShowsJobsAndNodes) {
  const auto table =
      StatusTable(R"({"service":"ddprun","protocol":1,"jobs":[{"run_id":"j","state":"running","round":2,
      "restarts":1,"max_restarts":3,"min_nodes":1,"max_nodes":4,"last_failure":"rank 1 failed","last_transition":"sealed",
      "last_transition_ms_ago":12,"nodes":[
        {"id":"a","host":"node1","addr":"10.0.0.1","state":"running","nproc":8,"group_rank":0},
        {"id":"b","host":"n2","addr":"10.0.0.2","state":"waiting","nproc":8,"group_rank":null,"lease_left_ms":4100}]}]})");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(*table,
            "job j: running, round 2, restarts 1 of 3, nodes 1 to 4\n"
            "  last transition, 12 ms ago: sealed\n"
            "  last failure: rank 1 failed\n"
            "  NODE  ADDRESS  STATE   GROUP_RANK WORKERS LEASE_LEFT_MS\n"
            "  node1 10.0.0.1 running 0          8       -\n"
            "  n2    10.0.0.2 waiting -          8       4100\n");
}

TEST(StatusTableTest, WhatIsNoStatusPageIsAnError) {
  for (const char* bad : {"", "x", "[]", "{}", R"({"jobs":3})", R"({"jobs":[{"run_id":"j"}]})"}) {
    EXPECT_EQ(StatusTable(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace ddprun
