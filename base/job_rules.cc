#include "base/job_rules.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

using Kind = JobRuleField::Kind;

constexpr int64_t kMaxNodes = 1 << 20;
constexpr int64_t kMaxNumber = INT32_MAX;
// Two years. The options of ddprun allow at most one year.
constexpr int64_t kMaxMillis = int64_t{1000} * 3600 * 24 * 365 * 2;

constexpr absl::string_view kScaleUp[] = {ToString(ScaleUp::kImmediate), ToString(ScaleUp::kAtSnapshot),
                                          ToString(ScaleUp::kNever)};

constexpr absl::string_view kOnHang[] = {"report", "restart"};
constexpr absl::string_view kQuorum[] = {"none", "majority", "voters"};
constexpr absl::string_view kAdmission[] = {"open", "expected"};

template <auto member>
constexpr JobRuleField Number(absl::string_view name, absl::string_view option, int64_t min, int64_t max) {
  return {name,
          option,
          Kind::kNumber,
          min,
          max,
          /*must_agree=*/true,
          {},
          [](const JobRules& r) { return static_cast<int64_t>(r.*member); },
          [](JobRules& r, int64_t v) { r.*member = static_cast<int>(v); }};
}

template <auto member>
constexpr JobRuleField Time(absl::string_view name, absl::string_view option, int64_t min, bool must_agree) {
  return {name,
          option,
          Kind::kDuration,
          min,
          kMaxMillis,
          must_agree,
          {},
          [](const JobRules& r) { return ToMillis(r.*member); },
          [](JobRules& r, int64_t v) { r.*member = milliseconds(v); }};
}

template <auto member, typename Enum>
constexpr JobRuleField Choice(absl::string_view name, absl::string_view option,
                              absl::Span<const absl::string_view> choices, bool must_agree = true) {
  return {name,
          option,
          Kind::kChoice,
          0,
          static_cast<int64_t>(choices.size()) - 1,
          must_agree,
          choices,
          [](const JobRules& r) { return static_cast<int64_t>(r.*member); },
          [](JobRules& r, int64_t v) { r.*member = static_cast<Enum>(v); }};
}

constexpr JobRuleField kFields[] = {
    Number<&JobRules::min_nodes>("min_nodes", "nnodes", 1, kMaxNodes),
    Number<&JobRules::max_nodes>("max_nodes", "nnodes", 1, kMaxNodes),
    Number<&JobRules::node_unit>("node_unit", "node-unit", 1, kMaxNodes),
    Number<&JobRules::max_restarts>("max_restarts", "max-restarts", 0, kMaxNumber),
    Choice<&JobRules::scale_up, ScaleUp>("scale_up", "scale-up", kScaleUp),
    Time<&JobRules::snapshot_timeout>("snapshot_timeout_ms", "snapshot-timeout", 0, /*must_agree=*/false),
    Time<&JobRules::min_uptime>("min_uptime_ms", "min-uptime", 0, /*must_agree=*/true),
    Number<&JobRules::max_restarts_without_progress>("max_restarts_without_progress",
                                                     "max-restarts-without-progress", 0, kMaxNumber),
    Number<&JobRules::exclude_after>("exclude_after", "exclude-after", 0, kMaxNumber),
    {"hang_timeout_ms",
     "hang-timeout",
     Kind::kHangTimeout,
     -1,
     kMaxMillis,
     /*must_agree=*/true,
     {},
     [](const JobRules& r) { return r.hang_timeout.millis(); },
     [](JobRules& r, int64_t v) { r.hang_timeout = HangTimeout::FromMillis(v); }},
    Choice<&JobRules::on_hang, OnHang>("on_hang", "on-hang", kOnHang),
    Choice<&JobRules::quorum, Quorum>("quorum", "quorum", kQuorum),
    Choice<&JobRules::admission, Admission>("admission", "", kAdmission, /*must_agree=*/false),
    Time<&JobRules::first_last_call>("first_last_call_ms", "", 0, /*must_agree=*/false),
    Time<&JobRules::last_call>("last_call_ms", "", 0, /*must_agree=*/false),
    Time<&JobRules::join_timeout>("join_timeout_ms", "rdzv-conf=join_timeout", 0, /*must_agree=*/false),
    Time<&JobRules::lease>("lease_ms", "rdzv-conf=lease_ms", 1, /*must_agree=*/true),
};

// Returns the option of `field` with its value, as on the command line.
std::string Option(const JobRuleField& field, const JobRules& rules) {
  if (field.option == "nnodes") return absl::StrCat("--nnodes=", rules.min_nodes, ":", rules.max_nodes);
  const absl::string_view separator = "=";
  if (absl::EndsWith(field.option, "_ms")) {
    return absl::StrCat("--", field.option, separator, field.get(rules));
  }
  return absl::StrCat("--", field.option, separator, RuleText(field, rules));
}

}  // namespace

bool JobRuleField::has_plain_option() const {
  return !option.empty() && option != "nnodes" && !absl::StartsWith(option, "rdzv-conf=");
}

absl::Span<const JobRuleField> JobRuleFields() { return kFields; }

std::string RuleText(const JobRuleField& field, const JobRules& rules) {
  const int64_t value = field.get(rules);
  switch (field.kind) {
    case Kind::kNumber:
      return absl::StrCat(value);
    case Kind::kHangTimeout:
      if (value < 0) return "auto";
      [[fallthrough]];
    case Kind::kDuration:
      return absl::StrCat(static_cast<double>(value) / 1000);
    case Kind::kChoice:
      return std::string(field.choices.at(value));
  }
  return "";
}

absl::Status SetRule(absl::string_view name, int64_t value, JobRules& rules) {
  const auto* field = std::find_if(std::begin(kFields), std::end(kFields),
                                   [name](const JobRuleField& f) { return f.name == name; });
  if (field == std::end(kFields)) return absl::InvalidArgumentError(absl::StrCat("unknown rule ", name));
  if (value < field->min || value > field->max) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", value, ", expected ", field->min, " to ", field->max));
  }
  field->set(rules, value);
  return absl::OkStatus();
}

absl::Status CheckRules(const JobRules& rules) {
  if (rules.max_nodes < rules.min_nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_nodes is ", rules.max_nodes, ", expected at least min_nodes, ", rules.min_nodes));
  }
  for (const int nodes : {rules.min_nodes, rules.max_nodes}) {
    if (nodes % rules.node_unit == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(nodes == rules.min_nodes ? "min_nodes" : "max_nodes",
                                                   " is ", nodes, ", expected a multiple of the node unit ",
                                                   rules.node_unit));
  }
  return absl::OkStatus();
}

const JobRuleField* FindDisagreement(const JobRules& job, const JobRules& node) {
  const auto disagrees = [&](const JobRuleField& f) { return f.must_agree && f.get(job) != f.get(node); };
  const auto* field = std::find_if(std::begin(kFields), std::end(kFields), disagrees);
  return field == std::end(kFields) ? nullptr : field;
}

std::string DisagreementText(const JobRuleField& field, const JobRules& job, const JobRules& node) {
  return absl::StrCat(Option(field, node), ", but the job has ", Option(field, job));
}

}  // namespace ddprun
