#include "rendezvous/core/waiting_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/overloaded.h"

namespace ddprun {
namespace {

constexpr size_t kMaxNames = 8;

}  // namespace

std::string Nodes(int n) { return absl::StrCat(n, n == 1 ? " node" : " nodes"); }

std::string Seconds(Duration d) {
  if (d < seconds(1)) return absl::StrCat(d / milliseconds(1), " ms");
  return absl::StrCat(d / seconds(1), " s");
}

std::string AbsenceText(const MissedReason& reason) {
  return std::visit(
      Overloaded{[](const Left& r) { return absl::StrCat("it left: ", r.why); },
                 [](const ConnectionLost& r) { return r.why; },
                 [](const AgentGone&) { return std::string("its agent was killed"); },
                 [](const Replaced&) { return std::string("it was started anew"); },
                 [](const LeaseExpired&) { return std::string("its lease expired"); },
                 [](const JoinTimedOut&) { return std::string("it waited too long"); },
                 [](const StopTimedOut&) { return std::string("it did not stop its workers"); }},
      reason);
}

std::string ListOf(const std::vector<AbsentNode>& absent, TimePoint now) {
  std::string text;
  for (size_t i = 0; i < std::min(absent.size(), kMaxNames); ++i) {
    const AbsentNode& node = absent[i];
    absl::StrAppend(&text, i == 0 ? "" : ", ", node.host);
    if (node.since) {
      absl::StrAppend(&text, " (lost ", Seconds(now - *node.since),
                      " ago: ", node.why ? AbsenceText(*node.why) : "", ")");
    } else {
      absl::StrAppend(&text, " (not heard from)");
    }
  }
  if (absent.size() > kMaxNames) absl::StrAppend(&text, " and ", absent.size() - kMaxNames, " more");
  return text;
}

std::string GatheringText(const JobRules& policy, int joined, const std::vector<AbsentNode>& absent,
                          TimePoint since, std::optional<TimePoint> last_call_end, TimePoint now) {
  std::string text = absl::StrCat(joined, "/", policy.max_nodes, " nodes joined, ");
  const int known = static_cast<int>(absent.size());
  if (joined >= policy.min_nodes) {
    absl::StrAppend(&text, "enough to start; last call for ", policy.max_nodes - joined, " more");
    if (known > 0) absl::StrAppend(&text, ": ", ListOf(absent, now));
    if (last_call_end) {
      const Duration left = std::max(*last_call_end - now, Duration::zero());
      absl::StrAppend(&text, "; the workers start in ", Seconds(std::chrono::ceil<seconds>(left)),
                      " at the latest (--rdzv-conf=last_call_timeout=SECONDS sets this time; a fixed "
                      "--nnodes=N has none)");
    }
    return text;
  }
  const int needed = policy.min_nodes - joined;
  if (known == 0) {
    absl::StrAppend(&text, "waiting for at least ", needed, " more (not heard from)");
  } else if (known < needed) {
    absl::StrAppend(&text, "waiting for ", ListOf(absent, now), " and at least ", needed - known,
                    " more (not heard from)");
  } else if (known == needed) {
    absl::StrAppend(&text, "waiting for ", ListOf(absent, now));
  } else {
    absl::StrAppend(&text, "waiting for at least ", needed, " of ", ListOf(absent, now));
  }
  if (now - since >= seconds(1)) absl::StrAppend(&text, "; for ", Seconds(now - since), " so far");
  return text;
}

std::string SpareText(const JobRules& policy, int running, int waiting) {
  const std::string runs = absl::StrCat("the job runs on ", Nodes(running));
  if (running >= policy.max_nodes) {
    return absl::StrCat("the job runs on its maximum of ", Nodes(policy.max_nodes),
                        "; this node is a spare and takes over when one is lost");
  }
  if (policy.scale_up == ScaleUp::kNever) {
    return absl::StrCat(runs, "; this node is a spare (--scale-up=never) and comes in when a round ends");
  }
  if (const int lacking = policy.node_unit - waiting; lacking > 0) {
    return absl::StrCat(runs, ", a multiple of ", policy.node_unit,
                        " (--node-unit); this node is a spare until ", lacking, " more come");
  }
  if (policy.scale_up == ScaleUp::kAtSnapshot) {
    return absl::StrCat(runs,
                        "; this node joins it at its next snapshot, which is asked for after the last call");
  }
  return absl::StrCat(runs, "; this node joins it at the next round");
}

}  // namespace ddprun
