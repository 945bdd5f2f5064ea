#include "tests/sim/script.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace ddprun::sim {
namespace {

constexpr std::pair<absl::string_view, FaultKind> kKinds[] = {
    {"start", FaultKind::kStart},
    {"kill-agent", FaultKind::kKillAgent},
    {"stop-agent", FaultKind::kStopAgent},
    {"term-agent", FaultKind::kTermAgent},
    {"kill-warden", FaultKind::kKillWarden},
    {"power-off", FaultKind::kPowerOff},
    {"suspend", FaultKind::kSuspend},
    {"fail-worker", FaultKind::kFailWorker},
    {"hang-workers", FaultKind::kHangWorkers},
    {"end-parked", FaultKind::kEndParked},
    {"fail-at", FaultKind::kFailAt},
    {"deaf-workers", FaultKind::kDeafWorkers},
    {"no-exec", FaultKind::kNoExec},
    {"cut", FaultKind::kCut},
    {"cut-out", FaultKind::kCutOut},
    {"cut-in", FaultKind::kCutIn},
    {"slow", FaultKind::kSlow},
    {"lossy", FaultKind::kLossy},
    {"reset", FaultKind::kReset},
    {"stall", FaultKind::kStall},
    {"end-coordinator", FaultKind::kEndCoordinator},
    {"disk-full", FaultKind::kDiskFull},
    {"disk-slow", FaultKind::kDiskSlow},
    {"drain", FaultKind::kDrain},
    {"notice", FaultKind::kNotice},
    {"register-down", FaultKind::kRegisterDown},
    {"register-cut", FaultKind::kRegisterCut},
    {"register-slow", FaultKind::kRegisterSlow},
    {"register-lossy", FaultKind::kRegisterLossy},
    {"hang-rank", FaultKind::kHangRank},
    {"stall-rank", FaultKind::kStallRank},
    {"slow-rank", FaultKind::kSlowRank},
    {"stop-job", FaultKind::kStopJob},
};

// Settings that are not JobRules. Durations are in milliseconds.
using Field = std::variant<int Settings::*, Duration Settings::*>;
const std::pair<absl::string_view, Field> kSettings[] = {
    {"drain_timeout_ms", &Settings::drain_timeout},
    {"grace_ms", &Settings::grace},
    {"hosts", &Settings::num_hosts},
    {"hosted", &Settings::hosted},
    {"register", &Settings::with_register},
    {"voters", &Settings::voters},
    {"expected_hosts", &Settings::expected_hosts},
    {"plain", &Settings::plain},
    {"steps", &Settings::total_steps},
    {"step_ms", &Settings::step_time},
    {"save_ms", &Settings::save},
    {"snapshot_every", &Settings::snapshot_every},
    {"survives", &Settings::survives},
    {"park_ms", &Settings::park},
    {"on_notice", &Settings::on_notice},
    {"loss_permille", &Settings::loss_permille},
    {"twice_permille", &Settings::twice_permille},
    {"max_delay_ms", &Settings::max_delay},
    {"calm_ms", &Settings::calm},
};

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Returns `d` in seconds with three decimal places, for example "12.345".
std::string SecondsText(Duration d) {
  char text[32];
  const int64_t ms = d / milliseconds(1);
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(ms / 1000),
                static_cast<long long>(ms % 1000));
  return text;
}
absl::StatusOr<Duration> ParseSeconds(absl::string_view text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value) || !(value >= 0 && value < 1e6)) {
    return Bad(absl::StrCat("'", text, "' is not a time in seconds"));
  }
  return milliseconds(static_cast<int64_t>(value * 1000 + 0.5));
}
absl::StatusOr<int64_t> ParseNumber(absl::string_view text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) return Bad(absl::StrCat("'", text, "' is not an integer"));
  return value;
}
absl::StatusOr<std::vector<int>> ParseHosts(absl::string_view text) {
  std::vector<int> hosts;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    ASSIGN_OR_RETURN(const int64_t host, ParseNumber(part));
    hosts.push_back(static_cast<int>(host));
  }
  return hosts;
}
absl::StatusOr<std::pair<absl::string_view, absl::string_view>> KeyAndValue(absl::string_view word) {
  const size_t equals = word.find('=');
  if (equals == absl::string_view::npos)
    return Bad(absl::StrCat("'", word, "' is not of the form NAME=VALUE"));
  return std::pair(word.substr(0, equals), word.substr(equals + 1));
}

absl::Status Set(Settings& settings, absl::string_view word) {
  ASSIGN_OR_RETURN(const auto pair, KeyAndValue(word));
  const auto& [key, text] = pair;
  ASSIGN_OR_RETURN(const int64_t value, ParseNumber(text));
  for (const auto& [name, field] : kSettings) {
    if (name != key) continue;
    if (const auto* number = std::get_if<int Settings::*>(&field)) {
      settings.** number = static_cast<int>(value);
    } else {
      settings.*std::get<Duration Settings::*>(field) = milliseconds(value);
    }
    return absl::OkStatus();
  }
  const auto is_it = [&key = key](const JobRuleField& field) { return field.name == key; };
  const auto rules = JobRuleFields();
  if (std::none_of(rules.begin(), rules.end(), is_it))
    return Bad(absl::StrCat("there is no setting '", key, "'"));
  return SetRule(key, value, settings.rules);
}

absl::StatusOr<Fault> ParseFault(const std::vector<absl::string_view>& words) {
  Fault fault;
  ASSIGN_OR_RETURN(fault.at, ParseSeconds(words[0]));
  if (words.size() < 2) return Bad("no fault follows the time");
  const auto kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& k) { return k.first == words[1]; });
  if (kind == std::end(kKinds)) return Bad(absl::StrCat("there is no fault '", words[1], "'"));
  fault.kind = kind->second;
  for (size_t i = 2; i < words.size(); ++i) {
    ASSIGN_OR_RETURN(const auto pair, KeyAndValue(words[i]));
    const auto& [key, value] = pair;
    if (key == "host") {
      ASSIGN_OR_RETURN(fault.hosts, ParseHosts(value));
    } else if (key == "to") {
      ASSIGN_OR_RETURN(fault.to, ParseHosts(value));
    } else if (key == "for") {
      ASSIGN_OR_RETURN(fault.length, ParseSeconds(value));
    } else if (key == "n") {
      ASSIGN_OR_RETURN(const int64_t n, ParseNumber(value));
      fault.n = static_cast<int>(n);
    } else {
      return Bad(absl::StrCat("a fault has no parameter '", key, "'"));
    }
  }
  return fault;
}

absl::Status ParseLine(const std::vector<absl::string_view>& words, Script& script) {
  if (words[0] == "seed") {
    if (words.size() != 2 || !absl::SimpleAtoi(words[1], &script.settings.seed))
      return Bad("expected: seed NUMBER");
  } else if (words[0] == "set") {
    for (size_t i = 1; i < words.size(); ++i) RETURN_IF_ERROR(Set(script.settings, words[i]));
  } else {
    ASSIGN_OR_RETURN(Fault fault, ParseFault(words));
    script.faults.push_back(std::move(fault));
  }
  return absl::OkStatus();
}

// Checks the rules and the number of hosts; the limit on hosts bounds memory use. Also checks that each fault
// is before calm and names existing hosts.
absl::Status Check(const Script& script) {
  const Settings& s = script.settings;
  if (s.num_hosts < 1 || s.num_hosts > 1000)
    return Bad(absl::StrCat("hosts is ", s.num_hosts, ", expected 1 to 1000"));
  RETURN_IF_ERROR(CheckRules(s.rules));
  if (s.on_notice < Settings::kExit || s.on_notice > Settings::kEndBySignal)
    return Bad(absl::StrCat("on_notice is ", s.on_notice, ", expected 0 to 3"));
  for (const Fault& fault : script.faults) {
    if (fault.at >= s.calm) return Bad(absl::StrCat(ToString(fault), ": the time is not before calm"));
    for (const auto* hosts : {&fault.hosts, &fault.to}) {
      for (const int host : *hosts) {
        if (host < 0 || host > s.num_hosts)
          return Bad(absl::StrCat(ToString(fault), ": there is no host ", host));
      }
    }
    if (fault.kind == FaultKind::kFailAt && (fault.n < 0 || fault.n > 2)) {
      return Bad(absl::StrCat(ToString(fault), ": n is not 0, 1 or 2"));
    }
    if (fault.kind == FaultKind::kSlowRank && (fault.n < 100 || fault.n >= 300)) {
      return Bad(absl::StrCat(ToString(fault), ": n is not 100 to 299"));
    }
    if (fault.kind == FaultKind::kNotice && fault.length < kShortestNotice) {
      return Bad(absl::StrCat(ToString(fault), ": a notice of less than ", ToMillis(kShortestNotice), " ms"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view ToString(FaultKind kind) {
  return std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& k) { return k.second == kind; })
      ->first;
}

bool IsOfWorkers(FaultKind kind) {
  return kind == FaultKind::kFailWorker || kind == FaultKind::kEndParked || kind == FaultKind::kFailAt ||
         kind == FaultKind::kHangRank || kind == FaultKind::kStallRank || kind == FaultKind::kSlowRank;
}

bool IsOfNetwork(FaultKind kind) {
  return kind == FaultKind::kCut || kind == FaultKind::kCutIn || kind == FaultKind::kCutOut ||
         kind == FaultKind::kSlow || kind == FaultKind::kLossy;
}

bool IsOfRegister(FaultKind kind) {
  return kind == FaultKind::kRegisterDown || kind == FaultKind::kRegisterCut ||
         kind == FaultKind::kRegisterSlow || kind == FaultKind::kRegisterLossy;
}

bool MaySilence(FaultKind kind) {
  switch (kind) {
    case FaultKind::kStart:
    case FaultKind::kTermAgent:
    case FaultKind::kFailWorker:
    case FaultKind::kHangWorkers:
    case FaultKind::kEndParked:
    case FaultKind::kFailAt:
    case FaultKind::kDeafWorkers:
    case FaultKind::kNoExec:
    case FaultKind::kDiskFull:
    case FaultKind::kDiskSlow:
    case FaultKind::kDrain:
    case FaultKind::kNotice:
    case FaultKind::kHangRank:
    case FaultKind::kStallRank:
    case FaultKind::kSlowRank:
    case FaultKind::kStopJob:
      return false;
    default:
      return true;
  }
}

std::string ToString(const Fault& fault) {
  std::string text = absl::StrCat(SecondsText(fault.at), " ", ToString(fault.kind));
  if (!fault.hosts.empty()) absl::StrAppend(&text, " host=", absl::StrJoin(fault.hosts, ","));
  if (!fault.to.empty()) absl::StrAppend(&text, " to=", absl::StrJoin(fault.to, ","));
  if (fault.length > Duration::zero()) absl::StrAppend(&text, " for=", SecondsText(fault.length));
  if (fault.n != 0) absl::StrAppend(&text, " n=", fault.n);
  return text;
}

std::string ToString(const Script& script) {
  std::string text = absl::StrCat("seed ", script.settings.seed, "\n");
  for (const JobRuleField& field : JobRuleFields()) {
    absl::StrAppend(&text, "set ", field.name, "=", field.get(script.settings.rules), "\n");
  }
  for (const auto& [name, field] : kSettings) {
    if (const auto* number = std::get_if<int Settings::*>(&field)) {
      absl::StrAppend(&text, "set ", name, "=", script.settings.**number, "\n");
    } else {
      absl::StrAppend(&text, "set ", name, "=",
                      script.settings.*std::get<Duration Settings::*>(field) / milliseconds(1), "\n");
    }
  }
  for (const Fault& fault : script.faults) absl::StrAppend(&text, ToString(fault), "\n");
  return text;
}

absl::StatusOr<Script> ParseScript(absl::string_view text) {
  Script script;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (!words.empty()) RETURN_IF_ERROR(ParseLine(words, script), absl::StrCat("line ", number));
  }
  std::stable_sort(script.faults.begin(), script.faults.end(),
                   [](const Fault& a, const Fault& b) { return a.at < b.at; });
  RETURN_IF_ERROR(Check(script));
  return script;
}

}  // namespace ddprun::sim
