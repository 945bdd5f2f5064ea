// The rules of a job: the same on all its nodes, fixed when the first node joins. One table describes how
// each rule is written. The command line, the join message, its validation, the comparison of two nodes and
// the printed join command all use this table.
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
  kAtSnapshot,  // at a snapshot that is requested from its workers
  kNever,       // not for new nodes; they wait as spares until the round ends for another reason
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

// How many nodes must stay in contact to continue the job without the others.
enum class Quorum {
  kNone,      // min_nodes
  kMajority,  // also at least half of the last round's nodes; the coordinator's side wins a tie
};

//   REQUIRES: 1 <= min_nodes <= max_nodes, both multiples of node_unit >= 1; the other numbers and all
//             durations >= 0; lease > 0.
struct JobRules {
  int min_nodes = 1;
  int max_nodes = 1;
  // How many failures may be followed by a restart. Membership changes are not counted.
  int max_restarts = 0;
  // How long the first round waits for more nodes after min_nodes have joined.
  Duration first_last_call = seconds(30);
  // The same for later rounds. Also how long a running round collects joining nodes before it ends to admit
  // them.
  Duration last_call = seconds(30);
  // How long a node waits for a round to be sealed.
  Duration join_timeout = seconds(600);
  // How long a node counts as alive after its last message. A node that receives no replies stops its workers
  // within this time.
  Duration lease = seconds(5);
  // The number of nodes in a round is a multiple of this; surplus nodes wait as spares.
  int node_unit = 1;
  ScaleUp scale_up = ScaleUp::kImmediate;
  // How long workers may take for a requested snapshot; then the round ends without it.
  Duration snapshot_timeout = seconds(60);
  // If a worker fails before this uptime and before its first step, the job ends: a restart would fail in the
  // same way. 0: disabled.
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
  absl::string_view option;  // without dashes; "rdzv-conf=KEY" for --rdzv-conf; empty: no option of its own
  Kind kind;
  int64_t min;
  int64_t max;
  bool must_agree;  // true: a node with another value is rejected; false: the first node's value applies
  absl::Span<const absl::string_view> choices;
  int64_t (*get)(const JobRules&);
  void (*set)(JobRules&, int64_t);

  // True if the rule has an option of its own, whose argument is the value: not a part of --nnodes or
  // --rdzv-conf.
  bool has_plain_option() const;
};

absl::Span<const JobRuleField> JobRuleFields();

// The value in the form that its option takes: "3", "1.5" (seconds), "at-snapshot".
std::string RuleText(const JobRuleField& field, const JobRules& rules);
// Sets the rule called `name`.
//   Errors: kInvalidArgument: the name is unknown, or the value is out of range. The message has the name
//           and, if out of range, the value.
absl::Status SetRule(absl::string_view name, int64_t value, JobRules& rules);
// Checks the relations between rules.
//   Errors: kInvalidArgument: max_nodes is below min_nodes, or one of them is not a multiple of node_unit.
absl::Status CheckRules(const JobRules& rules);

// Returns the first rule with must_agree in which `job` and `node` differ, or null if there is none.
const JobRuleField* FindDisagreement(const JobRules& job, const JobRules& node);
// "--nnodes=1:3, but the job has --nnodes=2:2".
std::string DisagreementText(const JobRuleField& field, const JobRules& job, const JobRules& node);

}  // namespace ddprun
