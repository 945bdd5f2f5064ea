// What the health check answers. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "launcher/agent/agent_machine.h"

namespace ddprun {

struct Health {
  AgentMachine::State state = AgentMachine::State::kIdle;
  Round round{-1};                           // -1: none yet
  int workers = 0;                           // that run
  std::vector<std::string> unkillable = {};  // processes of earlier rounds that no signal ends, in words
  TimePoint last_turn;                       // when the agent's loop last came round
};

// The agent's loop comes round each second; if it has not for so long, the agent is not well. torchrun gives
// its health check the same time.
inline constexpr Duration kLoopPatience = seconds(60);

struct HealthPage {
  int status = 200;  // of HTTP: 503 when the node is not well
  std::string json;  // one object on one line
};

// {"healthy": true, "state": "running", "round": 0, "workers_running": 2, "seconds_since_last_turn": 0.2},
// and "reason" when it is not.
HealthPage PageOf(const Health& health, TimePoint now);

}  // namespace ddprun
