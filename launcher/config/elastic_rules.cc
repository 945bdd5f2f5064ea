#include "launcher/config/elastic_rules.h"

#include <climits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/config/option_values.h"

namespace ddprun {
namespace {

absl::StatusOr<ScaleUp> ReadScaleUp(const Options& options) {
  for (const ScaleUp value : {ScaleUp::kImmediate, ScaleUp::kAtSnapshot, ScaleUp::kNever}) {
    if (options.Get("scale-up") == ToString(value)) return value;
  }
  return BadValue(options, "scale-up", "immediate, at-snapshot or never");
}

}  // namespace

absl::StatusOr<ElasticRules> ReadElasticRules(const Options& options, int min_nodes, int max_nodes) {
  ElasticRules rules;
  ASSIGN_OR_RETURN(rules.node_unit,
                   WholeNumber(options, "node-unit", 1, INT_MAX, "a whole number, 1 or more"));
  if (min_nodes % rules.node_unit != 0 || max_nodes % rules.node_unit != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.Quote("node-unit"), ": rounds have a multiple of it, so --nnodes=", min_nodes,
                     ":", max_nodes, " must have multiples of ", rules.node_unit, " too"));
  }
  ASSIGN_OR_RETURN(rules.scale_up, ReadScaleUp(options));
  ASSIGN_OR_RETURN(rules.snapshot_timeout, Seconds(options, "snapshot-timeout"));
  ASSIGN_OR_RETURN(rules.min_uptime, Seconds(options, "min-uptime"));
  ASSIGN_OR_RETURN(rules.max_restarts_without_progress, WholeNumber(options, "max-restarts-without-progress",
                                                                    0, INT_MAX, "a whole number, 0 or more"));
  return rules;
}

}  // namespace ddprun
