// The rules of a job: the same on all its nodes, fixed when the first of them joins. One table says of each
// how it is written; the command line, the join message, its check, the comparison of two nodes and the join
// command all go by it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/time.h"

namespace ddprun {

enum class ScaleUp {
  kImmediate,   // the round ends when the last call is over
  kAtSnapshot,  // its workers are asked for a snapshot first, and it ends at that
  kNever,       // they are spares, and come in when it ends for another reason
};

// As in --scale-up.
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

// Whether a part of the nodes that has lost the others may go on without them.
enum class Quorum {
  kNone,      // with min_nodes of them
  kMajority,  // and with at least half of the nodes of the last round, the coordinator's side deciding a tie
};

//   REQUIRES: 1 <= min_nodes <= max_nodes, both multiples of node_unit >= 1; the other numbers and all
//             durations >= 0; lease > 0.
struct JobRules {
  int min_nodes = 1;
  int max_nodes = 1;
  // Failures that may be answered by a new round. Membership changes are free.
  int max_restarts = 0;
  // How long the first round waits for more nodes once it has min_nodes.
  Duration first_last_call = seconds(30);
  // The same for later rounds, and how long newcomers to a running job are collected before it is interrupted
  // for them.
  Duration last_call = seconds(30);
  // How long a node waits for a round to be sealed.
  Duration join_timeout = seconds(600);
  // How long a node counts as alive after its last message. A node relies on it when it ends its workers
  // because it hears nothing.
  Duration lease = seconds(5);
  // Rounds have a multiple of so many nodes; more of them wait as spares.
  int node_unit = 1;
  ScaleUp scale_up = ScaleUp::kImmediate;
  // How long workers may take for a snapshot that they were asked for; the round ends without it then.
  Duration snapshot_timeout = seconds(60);
  // A failure earlier in a worker's life than this, and before its first step, ends the job: another start
  // would end the same way. 0: none does.
  Duration min_uptime = Duration::zero();
  // After so many restarts in a row that have not brought the job beyond its furthest step, the next failure
  // ends it. Only for jobs whose workers report steps. 0: any number.
  int max_restarts_without_progress = 3;
  // A host that was the first cause of so many failures and losses is left out of later rounds, unless fewer
  // than min_nodes would be left. 0: none is.
  int exclude_after = 0;
  Quorum quorum = Quorum::kNone;

  bool operator==(const JobRules&) const = default;
};

// How one rule is written. Its value is a whole number everywhere: milliseconds for a duration, the index
// among `choices` for a choice.
struct JobRuleField {
  enum class Kind { kNumber, kDuration, kChoice };

  absl::string_view name;    // on the wire; a duration's ends in _ms
  absl::string_view option;  // without dashes; of --rdzv-conf "rdzv-conf=KEY"; empty: none of its own
  Kind kind;
  int64_t min;
  int64_t max;
  bool must_agree;  // a node with another value is refused; else that of the first node holds
  absl::Span<const absl::string_view> choices;
  int64_t (*get)(const JobRules&);
  void (*set)(JobRules&, int64_t);

  // Has an option whose text is the value: not part of --nnodes or --rdzv-conf.
  bool has_plain_option() const;
};

absl::Span<const JobRuleField> JobRuleFields();

// As its option has it: "3", "1.5" (seconds), "at-snapshot".
std::string RuleText(const JobRuleField& field, const JobRules& rules);
// Sets a rule.
//   Errors: kInvalidArgument: out of range, with the field and the value; `name` is of no rule.
absl::Status SetRule(absl::string_view name, int64_t value, JobRules& rules);
// What the fields alone do not show.
//   Errors: kInvalidArgument: max_nodes below min_nodes, or one of them no multiple of node_unit.
absl::Status CheckRules(const JobRules& rules);

// The first rule with must_agree that has another value; null: there is none.
const JobRuleField* FindDisagreement(const JobRules& job, const JobRules& node);
// As options: "--nnodes=1:3, but the job has --nnodes=2:2".
std::string DisagreementText(const JobRuleField& field, const JobRules& job, const JobRules& node);

}  // namespace ddprun
