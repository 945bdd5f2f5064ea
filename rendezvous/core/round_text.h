// The words for what RoundMachine and CoordinatorMachine decide, and the names of options in them. Pure. Logs,
// the status page and scripts show these words, so a change of them is visible to users.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "rendezvous/core/notes.h"
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

}  // namespace ddprun
