// Formats the page of the health check. Pure: performs no I/O and reads no clock.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "launcher/agent/agent_machine.h"

namespace ddprun {

struct Health {
  AgentMachine::State state = AgentMachine::State::kIdle;
  Round round{-1};  // -1 before the first round
  int workers = 0;  // number of running workers
  // Descriptions of processes of earlier rounds that survived SIGKILL.
  std::vector<std::string> unkillable = {};
  TimePoint last_turn;  // when the agent's event loop last ran
};

// A node is unhealthy if its agent's event loop has not run for longer than this limit. The loop normally
// runs at least once a second. torchrun specifies the same limit for its health check.
inline constexpr Duration kLoopPatience = seconds(60);

struct HealthPage {
  int status = 200;  // HTTP status; 503 if the node is unhealthy
  std::string json;  // one JSON object on one line
};

// Returns a page such as
//   {"healthy": true, "state": "running", "round": 0, "workers_running": 2, "seconds_since_last_turn": 0.2}
// If the node is unhealthy, the object also has a member "reason".
HealthPage PageOf(const Health& health, TimePoint now);

}  // namespace ddprun
