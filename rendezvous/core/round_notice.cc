// RoundMachine's rules for notices of pre-emption.

#include <algorithm>
#include <utility>

#include "rendezvous/core/round_machine.h"

namespace ddprun {

void RoundMachine::On(const NoticeGiven& e) {
  const Member* member = membership_.Find(e.node);
  if (member == nullptr || member->phase == Phase::kLost) return;
  const TimePoint end = now_ + e.left;
  Notice notice{
      .why = e.reason, .stop_at = end - std::min(member->info.stop_timeout, e.left / 3), .end = end};
  if (e.back_in) notice.back_at = now_ + *e.back_in;
  if (const std::optional<Notice>& old = member->notice) {
    if (end >= old->end && !e.back_in) return;
    notice.stop_at = std::min(notice.stop_at, old->stop_at);
    notice.end = std::min(notice.end, old->end);
    if (!e.back_in) notice.back_at = old->back_at;
  }
  membership_.SetNotice(e.node, std::move(notice));
  const NodePreempted why{NameOf(*member), e.reason};
  effects_.push_back(note::Notice{why, e.left, e.back_in});
  if (Is<Running>() || Is<Draining>()) {
    const bool all_stop = InRound(*member) || member->info.hosts;  // the host may wait as a spare
    if (all_stop && !active().notice) active().notice = why;
  }
  if (member->phase == Phase::kStopping) TellTimeLeft(*member);
  if (const auto* draining = std::get_if<Draining>(&state_);
      draining != nullptr && !draining->closing && !member->info.leased) {
    return On(CloseRequested{Dismissal::kPreempted, HostPreempted{why}});
  }
  if (member->phase == Phase::kWaiting && member->info.leased) return LetGo(e.node);
  if (member->phase == Phase::kStopping) return StopForGood(*member);
  const auto* running = std::get_if<Running>(&state_);
  if (running == nullptr || member->phase != Phase::kRunning) return;
  if (running->asked && running->asked->stops) {
    AskToStop(*member);  // tells it that it goes away itself
  } else if (running->round.finishing) {
    TellTimeLeft(*member);
  }
}

void RoundMachine::AskToStop(const Member& member) {
  const Running& running = In<Running>();
  TakeSnapshot order{member.info.id, running.round.number, running.asked->why};
  order.stop_within = std::max(running.asked->end - now_, Duration::zero());
  if (member.notice) order.left = std::max(member.notice->end - now_, Duration::zero());
  effects_.push_back(std::move(order));
}

void RoundMachine::TellTimeLeft(const Member& member) {
  TakeSnapshot order{member.info.id, active().number, NodePreempted{NameOf(member), member.notice->why}};
  order.left = std::max(member.notice->end - now_, Duration::zero());
  effects_.push_back(std::move(order));
}

const Member* RoundMachine::HostWithNotice() const {
  for (const NodeId& id : membership_.noticed()) {
    if (const Member& member = membership_.At(id); !member.info.leased) return &member;
  }
  return nullptr;
}

void RoundMachine::InterruptForNotice(Running& s, const InterruptReason& why) {
  std::optional<TimePoint> end;
  for (const NodeId& id : membership_.noticed()) {
    const TimePoint stop_at = membership_.At(id).notice->stop_at;
    end = std::min(stop_at, end.value_or(stop_at));
  }
  if (!s.asked || !s.asked->stops) {
    s.asked = SnapshotAsked{.why = why, .since = now_, .end = *end, .stops = true};
    for (const auto& [id, m] : membership_.members()) {
      // The operations of a round in which workers have exited do not complete.
      if (m.phase == Phase::kRunning && !s.round.finishing) AskToStop(m);
    }
    effects_.push_back(note::SnapshotAsked{s.round.number, why});
    TellWaitersWithin(Duration::zero());
  }
  SnapshotAsked& asked = *s.asked;
  asked.end = std::min(asked.end, *end);
  if (now_ < asked.end) return;
  if (asked.step) return Drain(SnapshotCame{asked.why, *asked.step});
  Drain(NoSnapshotCame{asked.why, now_ - asked.since});
}

}  // namespace ddprun
