#include "launcher/agent/join_message.h"

#include "base/scale_up.h"
#include "proto/protocol_version.h"

namespace ddprun {
namespace {

proto::ScaleUp ToProto(ScaleUp scale_up) {
  switch (scale_up) {
    case ScaleUp::kImmediate:
      return proto::SCALE_UP_IMMEDIATE;
    case ScaleUp::kAtSnapshot:
      return proto::SCALE_UP_AT_SNAPSHOT;
    case ScaleUp::kNever:
      return proto::SCALE_UP_NEVER;
  }
  return proto::SCALE_UP_UNSPECIFIED;
}

}  // namespace

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
  for (const std::string& host : config.expected_hosts) join.add_expected_hosts(host);
  proto::JobRules& rules = *join.mutable_rules();
  rules.set_min_nodes(config.min_nodes);
  rules.set_max_nodes(config.max_nodes);
  rules.set_max_restarts(config.max_restarts);
  rules.set_first_last_call_ms(ToMillis(node.first_last_call));
  rules.set_last_call_ms(ToMillis(node.last_call));
  rules.set_join_timeout_ms(ToMillis(config.rdzv.join_timeout));
  rules.set_lease_ms(ToMillis(config.rdzv.lease));
  rules.set_node_unit(config.rules.node_unit);
  rules.set_scale_up(ToProto(config.rules.scale_up));
  rules.set_snapshot_timeout_ms(ToMillis(config.rules.snapshot_timeout));
  rules.set_min_uptime_ms(ToMillis(config.rules.min_uptime));
  rules.set_max_restarts_without_progress(config.rules.max_restarts_without_progress);
  return message;
}

}  // namespace ddprun
