// The join message of an agent: its node and the rules of its job.
#pragma once

#include <string>

#include "base/time.h"
#include "launcher/config/launch_config.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

struct JoiningNode {
  std::string id = {};  // unique for each join
  std::string host;     // short name, for users
  std::string address;  // where other nodes' workers reach it; empty: as the coordinator sees it
  int store_port = 0;
  Duration first_last_call{};
  Duration last_call{};
  Duration stop_timeout{};  // limit from the order to stop its workers to Ready
  // A secret: its holder may report to the coordinator that this node is gone.
  std::string gone_token = {};
  // Identity of this agent's previous join, whose workers are gone. Empty: first join.
  std::string previous_id = {};
  std::string previous_token = {};
};

proto::AgentMessage JoinMessage(const LaunchConfig& config, const JoiningNode& node);

}  // namespace ddprun
