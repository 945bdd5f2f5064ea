// Messages from fake agents, for tests.
#pragma once

#include <string>

#include "proto/rendezvous.pb.h"
#include "proto/versions.h"

namespace ddprun {

// Returns the join message of a node with id `node`, host "host-<node>" and one worker, for a job of `nodes`
// nodes. The job has long timeouts and no last call.
inline proto::AgentMessage JoinOf(const std::string& node, int nodes, const std::string& run_id = "j") {
  proto::AgentMessage message;
  proto::Join& join = *message.mutable_join();
  join.set_protocol(kProtocolVersion);
  join.set_run_id(run_id);
  join.set_node_id(node);
  join.set_host("host-" + node);
  join.set_store_port(4000);  // unused, because there are no workers
  join.set_nproc(1);
  join.set_role("default");
  join.set_stop_timeout_ms(60'000);
  auto& rules = *join.mutable_rules();
  rules["min_nodes"] = nodes;
  rules["max_nodes"] = nodes;
  rules["max_restarts_without_progress"] = 0;
  rules["first_last_call_ms"] = 0;
  rules["last_call_ms"] = 0;
  rules["join_timeout_ms"] = 600'000;
  rules["lease_ms"] = 60'000;
  return message;
}

// Returns the message with which a node reports that all its workers of `round` have ended.
inline proto::AgentMessage ReadyFor(int round) {
  proto::AgentMessage message;
  message.mutable_ready()->set_round(round);
  message.mutable_ready()->set_store_port(4000);
  return message;
}

}  // namespace ddprun
