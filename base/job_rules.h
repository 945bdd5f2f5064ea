// The rules of a job: the same on all its nodes, fixed when the first node joins. One table describes how
// each rule is written; the command line, the join message, its validation, the comparison of two nodes and
// the printed join command all use it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/time.h"

namespace ddprun {

// When the running round ends to admit nodes that have joined.
enum class ScaleUp {
  kImmediate,   // at the end of the last call
  kAtSnapshot,  // at a snapshot that its workers are asked for
  kNever,       // never for them; they wait as spares until it ends for another reason
};

// The values of --scale-up.
constexpr absl::string_view ToString(ScaleUp scale_up) {
  switch (scale_up) {
    case ScaleUp::kImmediate:
      return "immediate";
    case ScaleUp::kAtSnapshot:
      return "at-snapshot";
    case ScaleUp::kNever:
      return "never";
  }
  return "?";
}

// When a part of the nodes that has lost contact with the others may continue without them.
enum class Quorum {
  kNone,      // if it has min_nodes
  kMajority,  // if it also has half of the last round's nodes or more; the coordinator's side wins a tie
};

//   REQUIRES: 1 <= min_nodes <= max_nodes, both multiples of node_unit >= 1; the other numbers and all
//             durations >= 0; lease > 0.
struct JobRules {
  int min_nodes = 1;
  int max_nodes = 1;
  // How many failures may be answered by a new round. Membership changes are not counted.
  int max_restarts = 0;
  // How long the first round waits for more nodes after min_nodes have joined.
  Duration first_last_call = seconds(30);
  // The same for later rounds, and how long a running job collects joining nodes before they interrupt it.
  Duration last_call = seconds(30);
  // How long a node waits for a round to be sealed.
  Duration join_timeout = seconds(600);
  // How long a node counts as alive after its last message. A node that receives no answers ends its workers
  // within this time.
  Duration lease = seconds(5);
  // The number of nodes in a round is a multiple of this; surplus nodes wait as spares.
  int node_unit = 1;
  ScaleUp scale_up = ScaleUp::kImmediate;
  // How long workers may take for a requested snapshot; then the round ends without it.
  Duration snapshot_timeout = seconds(60);
  // A failure of a worker before this uptime and before its first step ends the job: another start would fail
  // the same way. 0: disabled.
  Duration min_uptime = Duration::zero();
  // After this many consecutive restarts without progress beyond the furthest step, the next failure ends the
  // job. Applies only if workers report steps. 0: unlimited.
  int max_restarts_without_progress = 3;
  // A host that was the first cause of this many failures and losses is excluded from later rounds, unless
  // fewer than min_nodes would remain. 0: disabled.
  int exclude_after = 0;
  Quorum quorum = Quorum::kNone;

  bool operator==(const JobRules&) const = default;
};

// How one rule is written. Its value is always an integer: milliseconds for a duration, an index into
// `choices` for a choice.
struct JobRuleField {
  enum class Kind { kNumber, kDuration, kChoice };

  absl::string_view name;    // on the wire; ends in _ms for a duration
  absl::string_view option;  // without dashes; "rdzv-conf=KEY" for --rdzv-conf; empty: none of its own
  Kind kind;
  int64_t min;
  int64_t max;
  bool must_agree;  // a node with another value is rejected; else the first node's value applies
  absl::Span<const absl::string_view> choices;
  int64_t (*get)(const JobRules&);
  void (*set)(JobRules&, int64_t);

  // True if it has an option of its own, whose text is the value: not part of --nnodes or --rdzv-conf.
  bool has_plain_option() const;
};

absl::Span<const JobRuleField> JobRuleFields();

// The value as its option takes it: "3", "1.5" (seconds), "at-snapshot".
std::string RuleText(const JobRuleField& field, const JobRules& rules);
// Sets the rule called `name`.
//   Errors: kInvalidArgument: unknown name, or the value is out of range; the message has both.
absl::Status SetRule(absl::string_view name, int64_t value, JobRules& rules);
// Checks relations between rules.
//   Errors: kInvalidArgument: max_nodes is below min_nodes, or one of them is not a multiple of node_unit.
absl::Status CheckRules(const JobRules& rules);

// The first rule with must_agree in which the two differ; null: none.
const JobRuleField* FindDisagreement(const JobRules& job, const JobRules& node);
// "--nnodes=1:3, but the job has --nnodes=2:2".
std::string DisagreementText(const JobRuleField& field, const JobRules& job, const JobRules& node);

}  // namespace ddprun
