#include <algorithm>
#include <climits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "launcher/cli/option_values.h"
#include "launcher/config/option_groups.h"

namespace ddprun {
namespace {

// Half of the time is for evidence, and agents look at the workers once a second.
constexpr Duration kShortestHangTimeout = seconds(5);

// "immediate, at-snapshot or never"
std::string AnyOf(absl::Span<const absl::string_view> choices) {
  return absl::StrCat(absl::StrJoin(choices.first(choices.size() - 1), ", "), " or ", choices.back());
}

absl::StatusOr<int64_t> Read(const Options& options, const JobRuleField& field) {
  switch (field.kind) {
    case JobRuleField::Kind::kNumber:
      return WholeNumber(options, field.option, static_cast<int>(field.min), INT_MAX,
                         absl::StrCat("a whole number, ", field.min, " or more"));
    case JobRuleField::Kind::kDuration: {
      ASSIGN_OR_RETURN(const Duration duration, Seconds(options, field.option));
      return ToMillis(duration);
    }
    case JobRuleField::Kind::kHangTimeout: {
      if (options.Get(std::string(field.option)) == "auto") return HangTimeout::Auto().millis();
      const absl::StatusOr<Duration> time = Seconds(options, field.option);
      if (!time.ok() || (*time > Duration::zero() && *time < kShortestHangTimeout)) {
        return BadValue(options, field.option,
                        absl::StrCat("auto, at least ", kShortestHangTimeout / seconds(1), " seconds, or 0"));
      }
      return ToMillis(*time);
    }
    case JobRuleField::Kind::kChoice:
      break;
  }
  const auto choice =
      std::find(field.choices.begin(), field.choices.end(), options.Get(std::string(field.option)));
  if (choice == field.choices.end()) return BadValue(options, field.option, AnyOf(field.choices));
  return choice - field.choices.begin();
}

}  // namespace

absl::StatusOr<JobRules> ReadJobRules(const Options& options, int min_nodes, int max_nodes) {
  JobRules rules;
  for (const JobRuleField& field : JobRuleFields()) {
    if (!field.has_plain_option()) continue;
    ASSIGN_OR_RETURN(const int64_t value, Read(options, field));
    field.set(rules, value);
  }
  if (min_nodes % rules.node_unit != 0 || max_nodes % rules.node_unit != 0) {
    return absl::InvalidArgumentError(absl::StrCat(options.Quote("node-unit"),
                                                   ": both limits of --nnodes=", min_nodes, ":", max_nodes,
                                                   " must be multiples of ", rules.node_unit));
  }
  return rules;
}

}  // namespace ddprun
