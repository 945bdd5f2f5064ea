// How workers of other nodes reach those of this one.
#pragma once

#include <string>

namespace ddprun {

struct NodeNetwork {
  std::string address = {};    // numeric; empty: unknown, or a job of one node
  std::string interface = {};  // that has it; empty: no interface of this node, or unknown
};

}  // namespace ddprun
