#include "tests/sim/world/hang_rules.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::sim {
namespace {

// Bounds of HangTimeout::Auto(); see BeatTable.
constexpr Duration kLeastLimit = seconds(10), kLeastHung = seconds(30), kUnlearnt = seconds(600);
constexpr int kEnoughSteps = 15;
// For a look, which may come a second late, for messages, and for clocks that run slowly.
constexpr Duration kMargin = seconds(5);
// A pause that has ended so recently may still be the last one that the coordinator knows of.
constexpr Duration kRecent = seconds(40);
// When an operator kills a hung rank after the round was told.
constexpr Duration kOperator = seconds(5), kLateOperator = seconds(700);

Duration WithDrift(Duration d) { return d + d / 20; }

// The ranks that a finding names as behind.
std::set<int64_t> NamedIn(const std::string& text, int64_t world_size) {
  std::set<int64_t> named;
  bool others = false;
  for (const absl::string_view sentence : absl::StrSplit(text, "; ")) {
    others = others || absl::StrContains(sentence, " other");
    if (absl::StrContains(sentence, " ended")) continue;
    int64_t rank = 0;
    if (absl::StartsWith(sentence, "rank ")) {
      const std::vector<absl::string_view> words = absl::StrSplit(sentence, ' ');
      if (absl::SimpleAtoi(words[1], &rank)) named.insert(rank);
    } else if (absl::StartsWith(sentence, "ranks ")) {  // ranks 1 (host1), 4 (host2) wait in ...
      for (const absl::string_view item : absl::StrSplit(sentence.substr(6), ", ")) {
        const std::vector<absl::string_view> words = absl::StrSplit(item, ' ');
        if (words.size() > 1 && absl::StartsWith(words[1], "(") && absl::SimpleAtoi(words[0], &rank))
          named.insert(rank);
      }
    }
  }
  // Without others, the sentences are about all ranks.
  if (!others && world_size > 1) named.clear();
  return named;
}

}  // namespace

void HangRules::Progress(const Assignment& assignment, const std::string& name) {
  if (!on()) return;
  RoundState& round = At(assignment);
  round.world_size = assignment.world_size;
  const TimePoint now = clock_.now();
  const auto [it, first] = round.hosts.try_emplace(name, Host{now, SimClock::kStart});
  Host& host = it->second;
  ++host.steps;
  const Duration pause = now - std::exchange(host.last, now);
  longest_ = std::max(longest_, pause);
  if (now > host.pause_end + kRecent || pause >= host.longest_pause) {
    host.longest_pause = pause;
    host.pause_end = now;
  }
}

void HangRules::Hangs(const Assignment& assignment, LocalRank local_rank, std::function<void()> kill) {
  if (!on()) return;
  RoundState& round = At(assignment);
  const bool first = round.hanging.empty();
  round.had_hung = true;
  round.hanging[assignment.first_rank.value() + local_rank.value()] = std::move(kill);
  if (!first) return;
  round.hangs_since = clock_.now();
  round.told.reset();
  Await({assignment.master_addr, assignment.master_port});
}

void HangRules::Gone(const Assignment& assignment, LocalRank rank, const std::string& host, bool was_last) {
  if (!on()) return;
  RoundState& round = At(assignment);
  round.hanging.erase(assignment.first_rank.value() + rank.value());
  NoteCutOff(round);
  if (was_last) round.hosts.erase(host);
}

void HangRules::Evidence(const Assignment& assignment, LocalRank rank, bool waits) {
  if (on()) At(assignment).waits[assignment.first_rank.value() + rank.value()] = waits;
}

void HangRules::NoteCutOff(const RoundState& round) {
  for (const auto& [name, host] : round.hosts)
    cut_off_ = cut_off_ || WithDrift(clock_.now() - host.last) >= kLeastHung;
}

bool HangRules::Learnt(const RoundState& round) const {
  return std::all_of(round.hosts.begin(), round.hosts.end(),
                     [](const auto& host) { return host.second.steps >= kEnoughSteps; });
}

Duration HangRules::ToldAfter(const RoundState& round) const {
  if (!learns()) return settings_.rules.hang_timeout.given();
  return std::max<Duration>(Learnt(round) ? kLeastLimit : kUnlearnt, 3 * longest_);
}

Duration HangRules::EndsAfter(const RoundState& round) const {
  if (!learns()) return settings_.rules.hang_timeout.given();
  return std::max<Duration>(Learnt(round) && !cut_off_ ? kLeastHung : kUnlearnt, 9 * longest_);
}

// Checks the round when it must have been told, and when it must have been ended.
void HangRules::Await(const Master& master) {
  RoundState& round = rounds_.at(master);
  if (round.over || round.hanging.empty()) return;
  const bool may_go_on = settings_.rules.on_hang == OnHang::kReport || (learns() && !Learnt(round));
  if (round.told && may_go_on) return;
  const TimePoint from = std::max(round.hangs_since, disturbed_until_);
  const TimePoint due = from + kMargin + WithDrift(round.told ? EndsAfter(round) : ToldAfter(round));
  if (clock_.now() < due) return clock_.At(due, [this, master] { Await(master); });
  Broken(absl::StrCat("a round with a hung rank is not ", round.told ? "ended " : "told ",
                      ToMillis(clock_.now() - from), " ms after the rank has hung or a fault has ended"));
}

void HangRules::KillLater(const Master& master, Duration later) {
  clock_.After(later, [this, master] {
    const std::map<int64_t, std::function<void()>> hanging = rounds_.at(master).hanging;
    for (const auto& [rank, kill] : hanging) {
      trace_.Line(clock_.now(), absl::StrCat("* an operator kills the hung rank ", rank));
      ++operators_;
      kill();
    }
  });
}

void HangRules::Check(const void* coordinator, const RoundEvent& event, const RoundEffects& effects,
                      const RoundMachine& machine) {
  stragglers_.Check(effects);
  if (!on()) return;
  const auto running = running_.find(coordinator);
  if (running != running_.end()) {
    const auto& [number, master] = running->second;
    RoundState& round = rounds_[master];
    if (const auto* e = std::get_if<EvidenceCame>(&event);
        e != nullptr && e->round == number && e->request == round.request) {
      round.came.insert(e->node);
    }
    for (const RoundEffect& effect : effects) {
      if (const auto* ask = std::get_if<CollectEvidence>(&effect)) {
        if (std::exchange(round.request, ask->request) != ask->request) {
          round.asked.clear();
          round.came.clear();
        }
        round.asked.insert(ask->node);
      } else if (const auto* order = std::get_if<TakeSnapshot>(&effect)) {
        DisturbedUntil(clock_.now() +
                       std::max(settings_.rules.snapshot_timeout, order->left.value_or(Duration(0))));
      } else if (const auto* note = std::get_if<ddprun::Note>(&effect)) {
        if (const auto* still = std::get_if<note::StandsStill>(note)) {
          OnNote(round, number, *still);
          if (!still->ends && !round.hanging.empty())
            KillLater(master, settings_.rules.on_hang == OnHang::kReport ? kOperator : kLateOperator);
        }
      }
    }
    if (machine.state() != RoundMachine::State::kRunning || machine.round() != number) {
      round.over = true;
      NoteCutOff(round);
      running_.erase(running);
    }
  }
  for (const RoundEffect& effect : effects) {
    if (const auto* e = std::get_if<Assign>(&effect))
      running_[coordinator] = {e->assignment.round, {e->assignment.master_addr, e->assignment.master_port}};
  }
}

void HangRules::OnNote(RoundState& round, Round number, const note::StandsStill& note) {
  ++(note.ends ? ended_ : told_);
  if (note.ends && !round.had_hung)
    Broken(absl::StrCat("round ", number.value(), " is ended as hung, but none of its ranks has hung"));
  if (!note.ends) round.told = clock_.now();
  Duration least = learns() ? (note.ends ? kLeastHung : kLeastLimit) : settings_.rules.hang_timeout.given();
  if (!note.ends) least -= seconds(1);
  for (const auto& [name, host] : round.hosts) {
    const TimePoint now = clock_.now();
    Duration pause = now - host.last;
    if (now <= host.pause_end + kRecent) pause = std::max(pause, host.longest_pause);
    if (WithDrift(pause) < least) {
      Broken(absl::StrCat(
          "round ", number.value(), note.ends ? " is ended as hung" : " is said to stand still",
          ", but the workers of ", name, " have begun a step ", ToMillis(now - host.last), " ms ago"));
    }
  }
  CheckFinding(round, number, note.finding);
}

void HangRules::CheckFinding(const RoundState& round, Round number, const std::string& text) {
  const bool complete = !round.asked.empty() && std::includes(round.came.begin(), round.came.end(),
                                                              round.asked.begin(), round.asked.end());
  ++(complete ? findings_ : late_evidence_);
  if (!complete || round.hanging.empty()) return;
  const std::set<int64_t> named = NamedIn(text, round.world_size);
  const auto waits = [&round](int64_t rank) {
    const auto it = round.waits.find(rank);
    return it != round.waits.end() && it->second;
  };
  for (const int64_t rank : named) {
    if (waits(rank)) {
      Broken(absl::StrCat("the finding of round ", number.value(), " names rank ", rank,
                          ", which waits in a collective: ", text));
    }
  }
  const int64_t hung = static_cast<int64_t>(round.hanging.size());
  if (named.empty() && (hung * 2 <= round.world_size || round.world_size == 1)) {
    Broken(absl::StrCat("the finding of round ", number.value(), " names no rank, but rank ",
                        round.hanging.begin()->first, " hangs: ", text));
  }
}

void HangRules::AddCounts(SimResult& result) const {
  result.told_still += told_;
  result.ended_hung += ended_;
  result.findings += findings_;
  result.late_evidence += late_evidence_;
  result.operators += operators_;
  result.stragglers += stragglers_.told();
}

}  // namespace ddprun::sim
