#include "launcher/observers/health_page.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "launcher/report/python_json.h"

namespace ddprun {
namespace {

const char* NameOf(AgentMachine::State state) {
  switch (state) {
    case AgentMachine::State::kIdle:
      return "waiting for a round";
    case AgentMachine::State::kRunning:
      return "running";
    case AgentMachine::State::kStopping:
      return "stopping workers";
    case AgentMachine::State::kParked:
      return "parked";
    case AgentMachine::State::kSeeking:
      return "looking for the coordinator";
    case AgentMachine::State::kFinished:
      return "ended";
  }
  return "unknown";
}

// Returns why the node is unhealthy; empty if it is healthy.
std::string WhyUnhealthy(const Health& health, Duration since_last_turn) {
  if (since_last_turn > kLoopPatience) {
    return absl::StrFormat("the agent's loop has not run for %.0f s: the agent is stopped or hangs",
                           std::chrono::duration<double>(since_last_turn).count());
  }
  if (health.state == AgentMachine::State::kSeeking) {
    return "the connection to the coordinator is lost; this node is reconnecting and has no workers";
  }
  if (!health.unkillable.empty()) {
    return absl::StrCat("processes left by workers survive SIGKILL; this host may need a reboot: ",
                        absl::StrJoin(health.unkillable, "; "));
  }
  return "";
}

}  // namespace

HealthPage PageOf(const Health& health, TimePoint now) {
  const Duration since_last_turn = std::max<Duration>(now - health.last_turn, Duration::zero());
  const std::string reason = WhyUnhealthy(health, since_last_turn);
  return {.status = reason.empty() ? 200 : 503,
          .json = absl::StrCat(
              "{\"healthy\": ", reason.empty() ? "true" : "false", ", \"state\": \"", NameOf(health.state),
              "\", \"round\": ", health.round.value(), ", \"workers_running\": ", health.workers,
              ", \"seconds_since_last_turn\": ",
              absl::StrFormat("%.1f", std::chrono::duration<double>(since_last_turn).count()),
              reason.empty() ? "" : absl::StrCat(", \"reason\": ", PythonString(reason)), "}\n")};
}

}  // namespace ddprun
