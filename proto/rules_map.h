// The rules of a job as a join message has them.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/job_rules.h"
#include "google/protobuf/map.h"

namespace ddprun {

using RulesMap = google::protobuf::Map<std::string, int64_t>;

inline void EncodeRules(const JobRules& rules, RulesMap& out) {
  for (const JobRuleField& field : JobRuleFields()) out[std::string(field.name)] = field.get(rules);
}

// Errors: kInvalidArgument naming the rule and its value.
inline absl::StatusOr<JobRules> DecodeRules(const RulesMap& map) {
  JobRules rules;
  for (const auto& [name, value] : map) {
    if (absl::Status status = SetRule(name, value, rules); !status.ok()) return status;
  }
  if (absl::Status status = CheckRules(rules); !status.ok()) return status;
  return rules;
}

}  // namespace ddprun
