#include "launcher/config/rdzv_conf.h"

#include <climits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "launcher/config/option_values.h"

namespace ddprun {
namespace {

constexpr char kWholeSeconds[] = "whole seconds, more than 0";
// A heartbeat, four in a lease, takes its time on a busy machine: with less, nodes would only lose each
// other.
constexpr int kLeastLeaseMs = 100;

absl::Status Bad(absl::string_view entry, absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat(entry, ": expected ", want));
}

absl::StatusOr<int> Positive(absl::string_view key, absl::string_view value, absl::string_view what) {
  return WholeNumber(key, value, 1, INT_MAX, what);
}

absl::StatusOr<bool> Bool(absl::string_view entry, absl::string_view value) {
  const std::string text = absl::AsciiStrToLower(value);
  for (const absl::string_view yes : {"1", "true", "t", "yes", "y"}) {
    if (text == yes) return true;
  }
  for (const absl::string_view no : {"0", "false", "f", "no", "n"}) {
    if (text == no) return false;
  }
  return Bad(entry, "true or false");
}

}  // namespace

absl::StatusOr<RdzvConf> ParseRdzvConf(absl::string_view text, std::vector<std::string>& warnings) {
  RdzvConf conf;
  const struct {
    absl::string_view key;
    Duration* value;
  } kSeconds[] = {{"join_timeout", &conf.join_timeout},
                  {"close_timeout", &conf.close_timeout},
                  {"heartbeat_timeout", &conf.heartbeat_timeout},
                  {"keep_alive_interval", &conf.keep_alive_interval},
                  {"read_timeout", &conf.read_timeout}};

  const auto set = [&](absl::string_view entry, absl::string_view key,
                       absl::string_view value) -> absl::Status {
    for (const auto& field : kSeconds) {
      if (key != field.key) continue;
      ASSIGN_OR_RETURN(const int number, Positive(key, value, kWholeSeconds));
      *field.value = ClampedSeconds(number);
      return absl::OkStatus();
    }
    if (key == "timeout" || key == "last_call_timeout") {
      ASSIGN_OR_RETURN(const int number, Positive(key, value, kWholeSeconds));
      (key == "timeout" ? conf.timeout : conf.last_call_timeout) = ClampedSeconds(number);
    } else if (key == "keep_alive_max_attempt") {
      ASSIGN_OR_RETURN(conf.keep_alive_max_attempt, Positive(key, value, "a whole number, more than 0"));
    } else if (key == "lease_ms") {
      ASSIGN_OR_RETURN(const int number,
                       WholeNumber(key, value, kLeastLeaseMs, INT_MAX,
                                   absl::StrCat("whole milliseconds, at least ", kLeastLeaseMs)));
      conf.lease = milliseconds(number);
    } else if (key == "is_host") {
      ASSIGN_OR_RETURN(conf.is_host, Bool(entry, value));
    } else if (key == "store_type") {
      if (value != "tcp") return Bad(entry, "tcp, the one kind of store here");
    } else {
      warnings.push_back(absl::StrCat("--rdzv-conf: unknown key ", key, " is ignored"));
    }
    return absl::OkStatus();
  };

  for (const absl::string_view entry : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(parts[0]);
    const absl::string_view value = parts.size() == 2 ? absl::StripAsciiWhitespace(parts[1]) : "";
    if (key.empty() || value.empty()) return Bad(entry, "KEY=VALUE, as in join_timeout=600");
    RETURN_IF_ERROR(set(entry, key, value));
  }
  return conf;
}

}  // namespace ddprun
