// What nodes that wait are told: for whom, and for how long already. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/job_rules.h"
#include "base/time.h"
#include "rendezvous/core/reasons.h"

namespace ddprun {

// "1 node", "3 nodes".
std::string Nodes(int n);
// "12 s", or "350 ms" below one second.
std::string Seconds(Duration d);
// What those who wait for a node are told: "its lease expired".
std::string AbsenceText(const MissedReason& reason);
// "node17 (not heard from), node3 (lost 12 s ago: its lease expired) and 5 more".
std::string ListOf(const std::vector<AbsentNode>& absent, TimePoint now);

// To nodes that wait for a round to be sealed, `joined` in all, since `since`.
//   last_call_end: with enough of them to start, when the round starts at the latest.
std::string GatheringText(const JobRules& policy, int joined, const std::vector<AbsentNode>& absent,
                          TimePoint since, std::optional<TimePoint> last_call_end, TimePoint now);
// To `waiting` nodes outside of a running round of `running` nodes.
std::string SpareText(const JobRules& policy, int running, int waiting);

}  // namespace ddprun
