// The rules of a job. They are fixed when the first node joins and are the same on all nodes. One table
// describes the name, the option and the range of each rule. The command line, the join message, the check
// that two nodes agree, and the printed join command use this table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/standstill.h"
#include "base/time.h"

namespace ddprun {

// When a running round ends so that the next round can admit nodes that have joined.
enum class ScaleUp {
  kImmediate,   // at the end of the last call
  kAtSnapshot,  // after the last call, when the workers have completed a requested snapshot
  kNever,       // never; new nodes wait as spares until the round ends for another reason
};

// Returns the value of --scale-up.
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

// How many nodes must remain in contact with the coordinator for the job to continue without the others.
enum class Quorum {
  kNone,      // at least min_nodes
  kMajority,  // at least min_nodes, and at least half of the last round's nodes
  kVoters,    // at least min_nodes, and a majority of the job's voters; one of these nodes coordinates
};

// Which nodes may join.
enum class Admission {
  kOpen,      // nodes of all hosts, at any time
  kExpected,  // nodes of the expected hosts; a node that has left, or whose agent has exited, does not return
};

// The values of the rules.
//   REQUIRES: 1 <= min_nodes <= max_nodes; node_unit >= 1; min_nodes and max_nodes are multiples of
//             node_unit; lease > 0; all other numbers and durations are >= 0.
struct JobRules {
  int min_nodes = 1;
  int max_nodes = 1;
  // The maximum number of restarts after failures. Restarts caused by membership changes do not count.
  int max_restarts = 0;
  // How long the first round waits for more nodes after min_nodes have joined.
  Duration first_last_call = seconds(30);
  // How long a later round waits for more nodes after min_nodes have joined. Also how long a running round
  // waits for more nodes, after a node has joined, before it ends in order to admit them.
  Duration last_call = seconds(30);
  // How long a node waits for a round to be sealed.
  Duration join_timeout = seconds(600);
  // How long a node counts as alive after its last message. A node that receives no replies stops its workers
  // within this time.
  Duration lease = seconds(5);
  // The number of nodes in a round is a multiple of this number. Surplus nodes wait as spares.
  int node_unit = 1;
  ScaleUp scale_up = ScaleUp::kImmediate;
  // How long workers may take to complete a requested snapshot. After this time, the round ends without it.
  Duration snapshot_timeout = seconds(60);
  // If a worker fails before it has run this long and before its first step, the job fails without a restart,
  // because a restart would fail in the same way. 0 disables this rule.
  Duration min_uptime = Duration::zero();
  // After this many consecutive restarts without progress beyond the furthest step, the job fails at the next
  // failure of a worker. Applies only if workers report steps. 0 means unlimited.
  int max_restarts_without_progress = 3;
  // A host is excluded from later rounds after this many incidents, unless fewer than min_nodes would
  // remain. An incident is a failure whose first cause was on the host, or the loss of the host's node. 0
  // disables this rule.
  int exclude_after = 0;
  HangTimeout hang_timeout = HangTimeout::Auto();
  OnHang on_hang = OnHang::kReport;
  Quorum quorum = Quorum::kVoters;
  // With kExpected, nodes do not wait for others if too few can still join.
  Admission admission = Admission::kOpen;

  bool operator==(const JobRules&) const = default;
};

// Describes one rule. Each value is represented as an integer: a duration in milliseconds, a HangTimeout as its millis(), a choice as
// an index into `choices`.
struct JobRuleField {
  enum class Kind { kNumber, kDuration, kHangTimeout, kChoice };

  absl::string_view name;  // the name in the join message; ends in _ms for a duration
  // The name of the option, without dashes. "rdzv-conf=KEY" if the rule is a key of --rdzv-conf; empty if the
  // rule has no option.
  absl::string_view option;
  Kind kind;
  int64_t min;
  int64_t max;
  // If true, a node whose value differs from the job's value is rejected. If false, the first
  // node's value applies.
  bool must_agree;
  absl::Span<const absl::string_view> choices;
  int64_t (*get)(const JobRules&);
  void (*set)(JobRules&, int64_t);

  // Returns whether the rule has an option whose argument is the value of this rule alone. Returns false for
  // rules that are given with --nnodes or --rdzv-conf, whose arguments combine several values.
  bool has_plain_option() const;
};

absl::Span<const JobRuleField> JobRuleFields();

// Returns the value of a rule as text: "3", "1.5" (a duration, in seconds), "at-snapshot".
std::string RuleText(const JobRuleField& field, const JobRules& rules);
// Sets the rule `name`.
//   Errors: kInvalidArgument: the name is unknown, or the value is out of range. The message
//           contains the name and, if the value is out of range, the value.
absl::Status SetRule(absl::string_view name, int64_t value, JobRules& rules);
// Checks the relations between rules.
//   Errors: kInvalidArgument: max_nodes is less than min_nodes, or either is not a multiple of node_unit.
absl::Status CheckRules(const JobRules& rules);

// Returns the first rule with must_agree in which `job` and `node` differ, or null if there is none.
const JobRuleField* FindDisagreement(const JobRules& job, const JobRules& node);
// Returns, for example, "--nnodes=1:3, but the job has --nnodes=2:2".
std::string DisagreementText(const JobRuleField& field, const JobRules& job, const JobRules& node);

}  // namespace ddprun
