// The page of the health check. Pure.
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
  int workers = 0;                           // running workers
  std::vector<std::string> unkillable = {};  // descriptions of old rounds' processes that survived SIGKILL
  TimePoint last_turn;                       // when the agent's loop last ran
};

// If the agent's loop, which normally runs at least once a second, has not run for longer than this, the node
// is unhealthy. torchrun's health check has the same limit.
inline constexpr Duration kLoopPatience = seconds(60);

struct HealthPage {
  int status = 200;  // HTTP status; 503: the node is unhealthy
  std::string json;  // one object on one line
};

// Returns a page such as
//   {"healthy": true, "state": "running", "round": 0, "workers_running": 2, "seconds_since_last_turn": 0.2}
// with a "reason" if the node is unhealthy.
HealthPage PageOf(const Health& health, TimePoint now);

}  // namespace ddprun
