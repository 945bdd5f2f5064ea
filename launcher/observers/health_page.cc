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
    case AgentMachine::State::kSeeking:
      return "looking for the coordinator";
    case AgentMachine::State::kFinished:
      return "ended";
  }
  return "unknown";
}

// Empty: it is well.
std::string WhyNot(const Health& health, Duration still) {
  if (still > kLoopPatience) {
    return absl::StrFormat("the agent has not come round for %.0f s: it is stopped, or hangs",
                           std::chrono::duration<double>(still).count());
  }
  if (health.state == AgentMachine::State::kSeeking) {
    return "the connection to the coordinator is lost; this node looks for it and has no workers meanwhile";
  }
  if (!health.unkillable.empty()) {
    return absl::StrCat(
        "no signal ends what workers have left behind, so this host may have to be restarted: ",
        absl::StrJoin(health.unkillable, "; "));
  }
  return "";
}

}  // namespace

HealthPage PageOf(const Health& health, TimePoint now) {
  const Duration still = std::max<Duration>(now - health.last_turn, Duration::zero());
  const std::string why_not = WhyNot(health, still);
  return {.status = why_not.empty() ? 200 : 503,
          .json = absl::StrCat("{\"healthy\": ", why_not.empty() ? "true" : "false", ", \"state\": \"",
                               NameOf(health.state), "\", \"round\": ", health.round.value(),
                               ", \"workers_running\": ", health.workers, ", \"seconds_since_last_turn\": ",
                               absl::StrFormat("%.1f", std::chrono::duration<double>(still).count()),
                               why_not.empty() ? "" : absl::StrCat(", \"reason\": ", PythonString(why_not)),
                               "}\n")};
}

}  // namespace ddprun
