// Texts for the decisions of RoundMachine and CoordinatorMachine. Pure. The texts are part of logs and the
// status page, which users read and scripts parse.
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
std::string ToText(const TooFewLeft& too_few);
std::string ToText(const NodeMissed& missed);
std::string ToText(const NodeStopping& stopping);
std::string ToText(const TakenOut& taken_out);
std::string ToText(const NodePreempted& preempted);
std::string ToText(const CoordinatorMoves& moves);
std::string ToText(const CloseReason& reason);
std::string ToText(const InterruptReason& reason);
std::string ToText(const EndOfRound& reason);
std::string ToText(const SealReason& reason);
std::string ToText(const CostReason& reason);
std::string ToText(const EndOfJob& end);  // empty on success
std::string ToText(const DismissReason& reason);
std::string ToText(const Waiting& waiting);

struct NoteText {
  absl::string_view event;  // "round_sealed", "node_lost", ...
  std::string reason;       // human-readable, with names and values
};
NoteText ToText(const Note& note);
inline constexpr absl::string_view kRoundStandsStill = "round_stands_still";
inline constexpr absl::string_view kRoundMovesAgain = "round_moves_again";
inline constexpr absl::string_view kStraggler = "straggler";

// --- Notices to waiting nodes

// Returns why a node is missing, such as "its lease expired".
std::string AbsenceText(const MissedReason& reason);
// Lists missing nodes, such as "node17 (not heard from), node3 (lost 12 s ago: its lease expired) and 5
// more".
std::string ListOf(const std::vector<AbsentNode>& absent, TimePoint now);

// Returns the notice to the `joined` nodes, which have waited since `since` for a round to be sealed.
//   last_call_end: the time at which the round starts at the latest; set if enough nodes have joined.
std::string GatheringText(const JobRules& policy, int joined, const std::vector<AbsentNode>& absent,
                          TimePoint since, std::optional<TimePoint> last_call_end, TimePoint now);
// Returns the notice to the `waiting` nodes that are not in the running round, which has `running` nodes.
std::string SpareText(const JobRules& policy, int running, int waiting);

}  // namespace ddprun
