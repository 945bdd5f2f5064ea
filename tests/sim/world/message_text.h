// Messages between agents and coordinator as text: one line each, with the kind and the relevant fields.
#pragma once

#include <string>

#include "proto/rendezvous.pb.h"

namespace ddprun::sim {

// For example "Ready(round 0, store port 1003)". Empty for heartbeats and for the answers to them.
std::string MessageText(const proto::AgentMessage& message);
std::string MessageText(const proto::CoordinatorMessage& message);

}  // namespace ddprun::sim
