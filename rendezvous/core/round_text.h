// The words for what RoundMachine and CoordinatorMachine decide, and the names of options in them. Pure. Logs,
// the status page and scripts show these words, so a change of them is visible to users.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/job_rules.h"
#include "base/time.h"
#include "rendezvous/core/reasons.h"

namespace ddprun {

std::string ToText(const NodeName& node);
std::string ToText(const NodeMissed& missed);
std::string ToText(const NodeStopping& stopping);
std::string ToText(const TakenOut& taken_out);
std::string ToText(const CloseReason& reason);
std::string ToText(const InterruptReason& reason);
std::string ToText(const EndOfRound& reason);
std::string ToText(const SealReason& reason);
std::string ToText(const CostReason& reason);
std::string ToText(const EndOfJob& end);  // empty: success
std::string ToText(const DismissReason& reason);
std::string ToText(const Waiting& waiting);

struct NoteText {
  absl::string_view event;  // "round_sealed", "node_lost", ...
  std::string reason;       // for people, with names and values
};
NoteText ToText(const Note& note);

// What nodes that wait are told: for whom, and for how long already. Pure.

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
