// The join message of an agent: its node and the rules of its job.
#pragma once

#include <string>

#include "base/time.h"
#include "launcher/config/launch_config.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

struct JoiningNode {
  std::string id = {};  // unique for each join
  std::string host;     // short name, shown to users
  std::string address;  // address for other nodes' workers; empty: the one that the coordinator sees
  int store_port = 0;
  Duration first_last_call{};
  Duration last_call{};
  Duration stop_timeout{};  // limit on the time from the order to stop workers until Ready
  // A secret: its holder may report to the coordinator that this node is gone.
  std::string gone_token = {};
  // Identity of this agent in its previous join, whose workers are gone. Empty on the first join.
  std::string previous_id = {};
  std::string previous_token = {};
};

proto::AgentMessage JoinMessage(const LaunchConfig& config, const JoiningNode& node);

}  // namespace ddprun
