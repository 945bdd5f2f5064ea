#include "launcher/agent/join_message.h"

#include "base/job_rules.h"
#include "proto/value_codec.h"
#include "proto/versions.h"

namespace ddprun {
proto::AgentMessage JoinMessage(const LaunchConfig& config, const JoiningNode& node) {
  proto::AgentMessage message;
  proto::Join& join = *message.mutable_join();
  join.set_protocol(kProtocolVersion);
  join.set_run_id(config.run_id);
  join.set_node_id(node.id);
  join.set_host(node.host);
  join.set_addr(node.address);
  join.set_store_port(node.store_port);
  join.set_nproc(config.num_local_workers);
  join.set_role(config.role);
  if (config.node_rank) {
    join.set_has_node_rank(true);
    join.set_node_rank(*config.node_rank);
  }
  join.set_stop_timeout_ms(ToMillis(node.stop_timeout));
  join.set_gone_token(node.gone_token);
  join.set_previous_node_id(node.previous_id);
  join.set_previous_gone_token(node.previous_token);
  for (const auto& [id, token] : node.gone) {
    proto::GoneNode& gone = *join.add_gone();
    gone.set_node_id(id);
    gone.set_gone_token(token);
  }
  join.set_coordinator_port(node.coordinator_port);
  if (node.last) {
    proto::LastPlace& last = *join.mutable_last();
    last.set_round(node.last->assignment.round.value());
    last.set_group_rank(node.last->assignment.group_rank.value());
    last.set_first_rank(node.last->assignment.first_rank.value());
    if (node.last->step) last.set_step(*node.last->step);
    last.set_ran_ms(ToMillis(node.last->ran));
  }
  for (const std::string& host : config.expected_hosts) join.add_expected_hosts(host);
  JobRules rules = config.rules;
  rules.min_nodes = config.min_nodes;
  rules.max_nodes = config.max_nodes;
  rules.first_last_call = node.first_last_call;
  rules.last_call = node.last_call;
  rules.join_timeout = config.rdzv.join_timeout;
  rules.lease = config.rdzv.lease;
  rules.admission = config.admission;
  EncodeRules(rules, *join.mutable_rules());
  return message;
}

}  // namespace ddprun
