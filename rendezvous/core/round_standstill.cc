// RoundMachine's rules for rounds that stand still or are slow.

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rendezvous/core/round_machine.h"
#include "rendezvous/core/round_text.h"

namespace ddprun {

void RoundMachine::On(const StandstillChanged& e) {
  if (ValidateSender(e.node, e.round) != nullptr && Is<Running>())
    active().hang.Changed(e.node, e.standstill);
}

void RoundMachine::On(const EvidenceCame& e) {
  if (ValidateSender(e.node, e.round) != nullptr && Is<Running>()) (void)active().hang.Came(e);
}

void RoundMachine::On(const StepsTimed& e) {
  const Member* const member = ValidateSender(e.node, e.round);
  if (member == nullptr || member->phase != Phase::kRunning || !Is<Running>()) return;
  Stragglers& stragglers = active().stragglers;
  for (const WorkerSteps& worker : e.workers) {
    if (worker.local_rank.value() >= member->info.nproc) continue;
    stragglers.Came(Rank(member->first_rank.value() + worker.local_rank.value()), member->info.host,
                    worker.times, now_);
  }
  for (note::Straggles& note : stragglers.Compare(now_)) effects_.push_back(std::move(note));
}

void RoundMachine::AdvanceHang() {
  // The end of the wait for a snapshot bounds the round anyway.
  while (Is<Running>() && !In<Running>().asked) {
    ActiveRound& round = active();
    switch (round.hang.Next(now_)) {
      case HangMachine::Act::kNothing:
        return;
      case HangMachine::Act::kAskForEvidence:
        for (const auto& [id, m] : membership_.members()) {
          if (m.phase != Phase::kRunning) continue;
          effects_.push_back(CollectEvidence{id, round.number, round.hang.request(), round.hang.max_bytes()});
        }
        break;
      case HangMachine::Act::kTell:
        effects_.push_back(note::StandsStill{round.number, round.hang.idle(), round.hang.Finding().text});
        round.standstill = ToText(std::get<Note>(effects_.back())).reason;
        break;
      case HangMachine::Act::kTellItMoves:
        effects_.push_back(note::MovesAgain{round.number});
        round.standstill.clear();
        break;
      case HangMachine::Act::kEnd:
        EndHung();
        break;
    }
  }
}

void RoundMachine::EndHung() {
  if (policy_.on_hang == OnHang::kReport) return;
  ActiveRound& round = active();
  const HangFinding finding = round.hang.Finding();
  if (finding.traced) return round.hang.Postpone(now_);  // somebody looks at it
  const Duration idle = round.hang.idle();
  effects_.push_back(note::StandsStill{round.number, idle, finding.text, /*ends=*/true});
  Failure failure{.exit = Hung{finding.text, !finding.behind.empty()}, .failed_at = now_};
  failure.cause = absl::StrCat("round ", round.number.value(), " has made no progress for ", InSeconds(idle),
                               finding.text.empty() ? "" : ": ", finding.text);
  failure.uptime = now_ - round.sealed_at;
  failure.step = furthest_.step();
  if (!finding.behind.empty()) {
    const RankEvidence& first = finding.behind[0];
    failure.rank = first.rank;
    failure.local_rank = first.worker.local_rank;
    failure.host = first.host;
    failure.pid = first.worker.pid;
    failure.step = first.worker.step;
  }
  round.failed = true;
  round.hang_proven = finding.proven;
  last_failure_ = failure.cause;
  FailureReported why{failure.cause};
  round.losses.ToldAtOnce(
      NodeId(), std::move(failure));  // of no node, so that the failures of a node do not replace it
  const size_t before = effects_.size();
  Drain(std::move(why));
  for (size_t i = before; i < effects_.size(); ++i) {
    auto* const stop = std::get_if<StopWorkers>(&effects_[i]);
    const Member* const member = stop == nullptr ? nullptr : membership_.Find(stop->node);
    if (member == nullptr || !finding.kill) continue;
    for (const RankEvidence& e : finding.behind) {
      if (e.rank.value() - e.worker.local_rank.value() == member->first_rank.value())
        stop->hung.push_back(e.worker.local_rank);
    }
  }
}

}  // namespace ddprun
