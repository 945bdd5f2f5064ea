// Builds an agent's join message, which describes the agent's node and the rules of the job.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/assignment.h"
#include "base/time.h"
#include "launcher/config/launch_config.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

// The last round in which a node took part, with its place there.
struct LastRound {
  Assignment assignment = {};
  std::optional<int64_t> step = {};  // the furthest step that a worker reported
  Duration ran = {};                 // how long the workers ran
};

struct JoiningNode {
  std::string id = {};  // unique for each join
  std::string host;     // short name, shown to users
  // Address at which workers of other nodes reach this node; empty: the address that the coordinator sees.
  std::string address;
  int store_port = 0;          // port of the worker store that this node offers
  Duration first_last_call{};  // see JobRules
  Duration last_call{};        // see JobRules
  Duration stop_timeout{};     // maximum time between the coordinator's Stop and this node's Ready
  // A secret: its holder may report to the coordinator that this node is gone.
  std::string gone_token = {};
  // The identity with which this agent joined previously; its workers of that time have exited. Empty in the
  // first join.
  std::string previous_id = {};
  std::string previous_token = {};
  // Ids and tokens of nodes; see AgentWorld::GoneNodes.
  std::vector<std::pair<std::string, std::string>> gone = {};
  int coordinator_port = 0;            // of the coordinator in this process; 0: there is none
  std::optional<LastRound> last = {};  // nullopt: the node has been in no round
};

proto::AgentMessage JoinMessage(const LaunchConfig& config, const JoiningNode& node);

}  // namespace ddprun
