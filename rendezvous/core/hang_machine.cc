#include "rendezvous/core/hang_machine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun {

void HangMachine::Add(const NodeId& node, const std::string& host, Rank first_rank) {
  if (nodes_.try_emplace(node, Node{.host = host, .first_rank = first_rank}).second) Count({}, 1);
}

void HangMachine::Count(const NodeStandstill& standstill, int n) {
  if (standstill.ended) return;
  Levels& levels = standstill.reports ? reporting_ : silent_;
  levels[static_cast<size_t>(standstill.level)] += n;
}

void HangMachine::Changed(const NodeId& node, const NodeStandstill& standstill) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  Count(it->second.standstill, -1);
  it->second.standstill = standstill;
  Count(standstill, 1);
}

bool HangMachine::Came(const EvidenceCame& evidence) {
  const auto it = nodes_.find(evidence.node);
  if (it == nodes_.end() || request_ == 0 || evidence.request != request_ || it->second.evidence)
    return false;
  it->second.evidence = evidence;
  ++have_;
  return true;
}

void HangMachine::Remove(const NodeId& node) {
  const auto it = nodes_.find(node);
  if (it == nodes_.end()) return;
  Count(it->second.standstill, -1);
  if (it->second.evidence) --have_;
  nodes_.erase(it);
}

StandstillLevel HangMachine::level() const {
  const auto some = [](int n) { return n > 0; };
  for (const Levels* levels : {&reporting_, &silent_}) {
    const auto lowest = std::find_if(levels->begin(), levels->end(), some);
    if (lowest != levels->end()) return static_cast<StandstillLevel>(lowest - levels->begin());
  }
  return StandstillLevel::kMoving;
}

Duration HangMachine::idle() const {
  const bool reports = reporting_ != Levels{};
  Duration idle = Duration::max();
  for (const auto& [id, node] : nodes_) {
    if (!node.standstill.ended && node.standstill.reports == reports)
      idle = std::min(idle, node.standstill.idle);
  }
  return idle == Duration::max() ? Duration::zero() : idle;
}

size_t HangMachine::max_bytes() const {
  return std::clamp(kMaxBytes / std::max<size_t>(nodes_.size(), 1), kMinNodeBytes, kMaxNodeBytes);
}

HangMachine::Act HangMachine::Next(TimePoint now) {
  const StandstillLevel level_now = level();
  if (level_now == StandstillLevel::kMoving) {
    const bool told = done_ >= StandstillLevel::kStill;
    done_ = StandstillLevel::kMoving;
    postponed_.reset();
    asked_again_ = false;
    return told ? Act::kTellItMoves : Act::kNothing;
  }
  if (level_now <= done_) return Act::kNothing;
  if (done_ == StandstillLevel::kMoving) {
    done_ = StandstillLevel::kSuspect;
    return AskForEvidence(now);
  }
  if (done_ == StandstillLevel::kSuspect) {
    if (level_now == StandstillLevel::kStill && WaitsForEvidence(now)) return Act::kNothing;
    done_ = StandstillLevel::kStill;
    return Act::kTell;
  }
  if (postponed_) {
    if (now < *postponed_) return Act::kNothing;
    postponed_.reset();
    return AskForEvidence(now);
  }
  if (asked_again_ && WaitsForEvidence(now)) return Act::kNothing;
  asked_again_ = false;
  done_ = StandstillLevel::kHung;
  return Act::kEnd;
}

HangMachine::Act HangMachine::AskForEvidence(TimePoint now) {
  ++request_;
  have_ = 0;
  for (auto& [id, node] : nodes_) node.evidence.reset();
  evidence_end_ = now + kEvidenceTime;
  return Act::kAskForEvidence;
}

void HangMachine::Postpone(TimePoint now) {
  done_ = StandstillLevel::kStill;
  postponed_ = now + kPostponed;
  asked_again_ = true;
}

std::optional<TimePoint> HangMachine::NextDeadline() const {
  if (done_ == StandstillLevel::kStill && asked_again_ && level() == StandstillLevel::kHung)
    return postponed_.value_or(evidence_end_);
  if (done_ != StandstillLevel::kSuspect || level() != StandstillLevel::kStill) return std::nullopt;
  return evidence_end_;
}

HangFinding HangMachine::Finding() const {
  std::vector<RankEvidence> ranks;
  std::map<std::string, std::string> missing;  // what could not be collected, with one of the hosts
  size_t silent = 0;
  const std::string* silent_host = nullptr;
  for (const auto& [id, node] : nodes_) {
    if (!node.evidence) {
      ++silent;
      silent_host = &node.host;
      continue;
    }
    for (const std::string& line : node.evidence->missing) missing.try_emplace(line, node.host);
    for (const WorkerEvidence& worker : node.evidence->workers) {
      ranks.push_back({Rank(node.first_rank.value() + worker.local_rank.value()), node.host, worker});
    }
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const RankEvidence& a, const RankEvidence& b) { return a.rank < b.rank; });
  HangFinding finding = FindWhoIsBehind(ranks);
  constexpr size_t kMaxMissing = 4;  // nodes may send different lines
  size_t shown = 0;
  for (const auto& [line, host] : missing) {
    if (shown++ == kMaxMissing) break;
    absl::StrAppend(&finding.text, finding.text.empty() ? "" : "; ", "on ", host, " ", line);
  }
  if (missing.size() > kMaxMissing)
    absl::StrAppend(&finding.text, "; and ", Counted(missing.size() - kMaxMissing, "more such line"));
  if (silent > 0) {
    absl::StrAppend(&finding.text, finding.text.empty() ? "" : "; ",
                    silent == 1 ? absl::StrCat(*silent_host, " has") : absl::StrCat(silent, " nodes have"),
                    " sent no evidence");
  }
  return finding;
}

}  // namespace ddprun
