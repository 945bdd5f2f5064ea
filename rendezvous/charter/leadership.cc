#include "rendezvous/charter/leadership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/text.h"

namespace ddprun {

LeadershipMachine::LeadershipMachine(LeadershipRules rules) : rules_(std::move(rules)) {}

LeadershipEffects LeadershipMachine::Step(const LeadershipEvent& event, BootTime now) {
  DDPRUN_CHECK(now >= now_, "now goes back by " << (now_ - now) / milliseconds(1) << " ms");
  now_ = now;
  effects_.clear();
  if (state_ != State::kEnded) {
    std::visit([this](const auto& e) { On(e); }, event);
    Advance();
  }
  return std::exchange(effects_, {});
}

Duration LeadershipMachine::Leases(double n) const {
  return std::chrono::duration_cast<Duration>(rules_.lease * n);
}

std::optional<BootTime> LeadershipMachine::NextDeadline() const {
  switch (state_) {
    case State::kSeeking:
      break;
    case State::kFollowing:
      if (!standby_) return std::nullopt;
      break;
    case State::kLeading:
    case State::kLeaving:
      if (in_flight_) return leads_until_;
      return std::min(leads_until_, std::max(pause_end_, Urgent() ? BootTime() : next_call_));
    case State::kEnded:
      return std::nullopt;
  }
  if (in_flight_) return std::nullopt;
  return std::max(pause_end_, std::min(next_call_, MayLeadAt().value_or(next_call_)));
}

// --- Events

void LeadershipMachine::On(const Disconnected&) {
  followed_.reset();
  if (state_ != State::kFollowing) return;
  state_ = State::kSeeking;
  next_call_ = now_;
}

void LeadershipMachine::On(const Connected& e) {
  if (HasLead()) return;  // to itself
  state_ = State::kFollowing;
  standby_ = e.standby;
}

void LeadershipMachine::On(const ReadDone& e) {
  in_flight_ = false;
  if (!e.record.ok()) return CallFailed(e.record.status());
  lost_since_.reset();
  Saw(*e.record);
}

void LeadershipMachine::On(const SwapDone& e) {
  in_flight_ = false;
  if (!e.result.ok()) return CallFailed(e.result.status());
  lost_since_.reset();
  if (!e.result->swapped) return Saw(e.result->current);
  seen_->version = e.result->current.version;
  seen_->exists = true;
  seen_at_ = now_;
  if (!lead_) {  // lost in the meantime
    read_ = false;
    return;
  }
  seen_lead_ = *lead_;
  SawOwn(*lead_);
}

void LeadershipMachine::On(const LeaderGone& e) { gone_ = e.epoch; }

void LeadershipMachine::On(const CharterChanged& e) {
  if (state_ != State::kLeading) return;
  charter_ = e.charter;
  ++charters_;
}

void LeadershipMachine::On(const LeaderEnds& e) {
  if (state_ != State::kLeading) return;
  DDPRUN_CHECK(charters_ == written_, "charter " << charters_ << " is not written");
  state_ = State::kLeaving;
  end_state_ = e.state;
}

// --- The record

bool LeadershipMachine::IsOwn(const Lead& lead) const {
  return lead_ && lead.leader == rules_.id && lead.epoch == lead_->epoch;
}

absl::StatusOr<Lead> LeadershipMachine::LeadOf(const RegisterRecord& record) const {
  if (!record.exists) return Lead();
  absl::StatusOr<Lead> lead = DecodeLead(record.lead);
  if (!lead.ok() || !rules_.check || IsOwn(*lead)) return lead;
  const bool checked = read_ && seen_->exists && seen_lead_.ok() && seen_->charter == record.charter;
  if (checked) return lead;
  if (absl::Status fits = rules_.check(record.charter); !fits.ok()) return fits;
  return lead;
}

void LeadershipMachine::Saw(const RegisterRecord& record) {
  const bool other =
      !seen_ || seen_->exists != record.exists || (record.exists && seen_->version != record.version);
  if (other) seen_at_ = now_;
  const bool led = seen_ && seen_->exists && seen_lead_.ok() && seen_lead_->state == Lead::State::kLeads;
  vanished_ = !record.exists && (vanished_ || led);
  seen_lead_ = LeadOf(record);
  seen_ = record;
  read_ = true;
  if (record.exists && !seen_lead_.ok()) {
    if (HasLead()) Lose(std::string(seen_lead_.status().message()));
    lead_.reset();
    effects_.emplace_back(RegisterFails{seen_lead_.status()});
    return;
  }
  if (record.exists && IsOwn(*seen_lead_)) return SawOwn(*seen_lead_);
  if (HasLead()) {
    // An own swap of the present lead cannot come after this record, because its version has passed.
    Lose(record.exists ? absl::StrCat("another process, ", seen_lead_->address,
                                      ", leads the job since epoch ", seen_lead_->epoch)
                       : std::string("the record of the job was removed from the register"));
  }
  lead_.reset();
  if (!record.exists) return;
  if (seen_lead_->state == Lead::State::kClosed) {
    effects_.emplace_back(JobIsOver{record.charter});
    state_ = State::kEnded;
  } else if (seen_lead_->state == Lead::State::kLeads && seen_lead_->leader != rules_.id &&
             state_ == State::kSeeking && followed_ != seen_lead_->epoch) {
    followed_ = seen_lead_->epoch;
    effects_.emplace_back(FollowLeader{seen_lead_->epoch, seen_lead_->address});
  }
}

void LeadershipMachine::SawOwn(const Lead& lead) {
  while (!sent_.empty() && sent_.front().swap <= lead.swap) {
    if (sent_.front().swap == lead.swap) {
      leads_until_ = std::max(leads_until_, sent_.front().at + Leases(kTerm));
      next_call_ = sent_.front().at + Leases(kRenewal);
    }
    sent_.pop_front();
  }
  if (!HasLead()) {
    // The answer may come too late. Then the record counts like that of another process.
    if (now_ >= leads_until_ || lead.state != Lead::State::kLeads) {
      lead_.reset();
      return;
    }
    state_ = State::kLeading;
    charters_ = written_ = 0;
    effects_.emplace_back(BeginToLead{lead.epoch, std::exchange(seen_->charter, {}), handed_over_, fenced_});
  }
  // The next charter of this leader replaces it.
  read_ = false;
  seen_->charter.clear();
  // The answer may have waited while this process was stopped. What follows from the charter is no longer this leader's to do.
  if (lead.state == Lead::State::kLeads && now_ >= leads_until_) return;
  if (lead.charter > written_) {
    written_ = lead.charter;
    effects_.emplace_back(CharterWritten{written_});
  }
  if (lead.state != Lead::State::kLeads) Ended(/*written=*/true);
}

void LeadershipMachine::CallFailed(const absl::Status& why) {
  pause_end_ = now_ + Leases(kRenewal / 2);
  if (!absl::IsDataLoss(why)) {
    lost_since_.reset();
  } else if (!lost_since_) {
    lost_since_ = now_;
  }
  effects_.emplace_back(RegisterFails{why, lost_since_ && now_ - *lost_since_ >= rules_.lease});
}

void LeadershipMachine::Ended(bool written) {
  state_ = State::kEnded;
  effects_.emplace_back(LeadEnded{written});
}

void LeadershipMachine::Lose(std::string why) {
  if (state_ == State::kLeaving) return Ended(/*written=*/false);
  state_ = State::kSeeking;
  lead_.reset();
  sent_.clear();
  followed_.reset();
  next_call_ = now_;
  effects_.emplace_back(LeadLost{std::move(why)});
}

// --- What is due

void LeadershipMachine::Advance() {
  if (HasLead() && now_ >= leads_until_) {
    Lose(absl::StrCat("the register has not confirmed the lead for ", InSeconds(Leases(kTerm))));
  }
  if (in_flight_) return;
  if (HasLead()) {
    AdvanceLeading();
  } else if (state_ == State::kSeeking || (state_ == State::kFollowing && standby_)) {
    AdvanceWithoutLead();
  }
}

void LeadershipMachine::AdvanceLeading() {
  if (now_ < pause_end_ || (now_ < next_call_ && !Urgent())) return;
  Swap();
}

BootTime LeadershipMachine::LapsesAt() const {
  const Duration lease = seen_->exists ? std::max(rules_.lease, seen_lead_->lease) : rules_.lease;
  return seen_at_ + std::chrono::duration_cast<Duration>(lease * kPatience);
}

std::optional<BootTime> LeadershipMachine::MayLeadAt() const {
  if (!seen_ || !read_) return std::nullopt;
  if (!seen_->exists) return vanished_ ? LapsesAt() : BootTime();
  if (!seen_lead_.ok() || seen_lead_->state == Lead::State::kClosed) return std::nullopt;
  if (seen_lead_->state == Lead::State::kLeft) return BootTime();
  return gone_ == seen_lead_->epoch ? BootTime() : LapsesAt();
}

void LeadershipMachine::AdvanceWithoutLead() {
  if (now_ < pause_end_) return;
  const std::optional<BootTime> lead_at = MayLeadAt();
  if (lead_at && now_ >= *lead_at) {
    if (!lead_) {
      handed_over_ = !seen_->exists || seen_lead_->state == Lead::State::kLeft;
      fenced_ = handed_over_ || now_ >= LapsesAt();
      const int64_t last = seen_->exists ? seen_lead_->epoch : 0;
      lead_ = Lead{.epoch = std::max(seen_->version, last) + 1,
                   .leader = rules_.id,
                   .address = rules_.address,
                   .lease = rules_.lease};
      sent_.clear();
      leads_until_ = BootTime();
      charters_ = written_ = 0;
      charter_.clear();
    }
    return Swap();
  }
  if (now_ < next_call_) return;
  in_flight_ = true;
  next_call_ = now_ + Leases(kRenewal);
  effects_.emplace_back(ReadRegister{Leases(kCallLimit)});
}

void LeadershipMachine::Swap() {
  in_flight_ = true;
  lead_->swap = ++swaps_;
  if (end_state_) lead_->state = *end_state_;
  const bool with_charter = charters_ > written_;
  if (with_charter) lead_->charter = charters_;
  sent_.push_back({swaps_, now_});
  next_call_ = now_ + Leases(kRenewal);
  effects_.emplace_back(SwapRegister{.version = seen_->version,
                                     .exists = seen_->exists,
                                     .lead = EncodeLead(*lead_),
                                     .charter = with_charter ? std::optional(charter_) : std::nullopt,
                                     .limit = Leases(kCallLimit)});
}

}  // namespace ddprun
