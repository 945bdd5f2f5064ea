// What an agent says of itself and of the rules of its job when it joins.
#pragma once

#include <string>

#include "base/time.h"
#include "launcher/config/launch_config.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

struct JoiningNode {
  std::string id = {};  // of this life of the node
  std::string host;     // short name, for people
  std::string address;  // where other nodes' workers reach it; empty: as the coordinator sees it
  int store_port = 0;
  Duration first_last_call{};
  Duration last_call{};
  Duration stop_timeout{};  // from the order to stop its workers to Ready
  // A secret: its holder may report to the coordinator that this node is gone.
  std::string gone_token = {};
  // What this agent was before; its workers are gone. Empty: nothing.
  std::string previous_id = {};
  std::string previous_token = {};
};

proto::AgentMessage JoinMessage(const LaunchConfig& config, const JoiningNode& node);

}  // namespace ddprun
