// RoundRules of rounds that are ended as hung: this is one failure of the round, of no node.

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/sim/world/round_rules.h"

namespace ddprun::sim {
namespace {

// The host of the first rank that is behind, if that rank is stopped and others are not: "rank 3 on host1 is stopped by a signal" or "ranks 3 (host1),
// 5 (host2) are stopped by a signal". Otherwise empty, because only such a rank is held against its host.
std::string ProvenHost(absl::string_view finding) {
  if (!absl::StrContains(finding, " other")) return "";  // about all ranks
  finding = finding.substr(0, finding.find("; "));
  if (!absl::StrContains(finding, "stopped by a signal")) return "";
  const std::vector<absl::string_view> words = absl::StrSplit(finding, ' ');
  std::string host(words[0] == "rank" ? words[3] : words[2]);
  std::erase_if(host, [](char c) { return c == '(' || c == ')' || c == ','; });
  return host;
}

}  // namespace

void RoundRules::NoteHung(const RoundEffects& effects) {
  for (const RoundEffect& effect : effects) {
    const auto* note = std::get_if<ddprun::Note>(&effect);
    const auto* e = note == nullptr ? nullptr : std::get_if<note::StandsStill>(note);
    if (e == nullptr || !e->ends) continue;
    if (state_ != RoundMachine::State::kRunning) Broken("a round was ended as hung that does not run");
    if (policy_.on_hang != OnHang::kRestart) Broken("a round was ended as hung despite --on-hang=report");
    failed_ = true;
    consequences_only_ = false;
    told_[NodeId()] = 1;
    if (const std::string host = ProvenHost(e->finding); !host.empty()) failed_hosts_[host] = true;
  }
}

}  // namespace ddprun::sim
