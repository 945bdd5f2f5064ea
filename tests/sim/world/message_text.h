// Messages between agents and coordinator as text: one line each, the kind and the fields that a reader needs.
#pragma once

#include <string>

#include "proto/rendezvous.pb.h"

namespace ddprun::sim {

// "Ready(round 0, store port 1003)". Empty: a heartbeat or its answer.
std::string MessageText(const proto::AgentMessage& message);
std::string MessageText(const proto::CoordinatorMessage& message);

}  // namespace ddprun::sim
