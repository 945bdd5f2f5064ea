#include "tests/sim/world/takeover_rules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/dismissal.h"
#include "proto/value_codec.h"
#include "rendezvous/coordinator/charter_codec.h"

namespace ddprun::sim {
namespace {

// In leases. A job with an agent has a leader after this time and that of so many votes, unless something is disturbed.
constexpr int kNoLeader = 3;
constexpr int kVotes = 10;
// TCP repeats a lost packet after this time or more.
constexpr Duration kRepetition = milliseconds(200);
// How long the effects of a disturbance may last, in leases.
constexpr int kAftermath = 3;
constexpr Duration kFenceSlack = milliseconds(5);

}  // namespace

void TakeoverRules::Wrote(const RegisterRecord& before, const RegisterRecord& now_in_it) {
  if (now_in_it.version <= before.version) Broken("the version of a record has not increased");
  const absl::StatusOr<Lead> lead = DecodeLead(now_in_it.lead);
  if (!lead.ok()) return Broken(absl::StrCat("the register has no lead: ", lead.status().message()));
  if (closed()) Broken(absl::StrCat(lead->leader, " writes to the register of a closed job"));
  if (lead_ && lead->epoch < lead_->epoch) Broken("an epoch has decreased");
  if (lead_ && lead->epoch == lead_->epoch && lead->leader != lead_->leader)
    Broken(absl::StrCat(lead->leader, " and ", lead_->leader, " lead in one epoch"));
  const bool another = !lead_ || lead->epoch != lead_->epoch;
  if (another && lead_ && lead_->state == Lead::State::kLeads) {
    ++takeovers_;
    if (now() < promise_end_)
      Broken(absl::StrCat(lead->leader, " takes over from ", lead_->leader, " ",
                          (promise_end_ - now()) / milliseconds(1), " ms before the end of its lead"));
  } else if (another && lead_) {
    ++hand_overs_;
  }
  lead_ = *lead;
  if (now_in_it.charter == before.charter) return;
  if (now_in_it.charter.empty()) {  // the job may be started again, as a new one
    if (!charter_.end && round_ && has_charter_) job_.trace->Line(now(), "the job is forgotten");
    charter_ = {};
    has_charter_ = false;
    round_.reset();
    restarts_ = 0;
    return;
  }
  const absl::StatusOr<Charter> charter = DecodeCharter("sim", now_in_it.charter);
  if (!charter.ok()) return Broken(absl::StrCat("the charter is wrong: ", charter.status().message()));
  if (has_charter_) {
    if (charter->round < charter_.round) Broken("the round of the charter has decreased");
    if (charter->restarts < charter_.restarts) Broken("the restarts of the charter have decreased");
    if (charter_.end && (charter->end != charter_.end || charter->round != charter_.round))
      Broken("a job that was over goes on, or has another end");
  }
  if (charter->end && !charter_.end && charter->end->outcome == Dismissal::kSucceeded) ++succeeded_;
  charter_ = *charter;
  has_charter_ = true;
}

void TakeoverRules::Began(const std::string& id, int64_t epoch, const RoundMachine* machine) {
  if (epochs_[id] == epoch) return;  // the agent has asked again
  if (epoch <= epoch_) Broken(absl::StrCat("epoch ", epoch, " begins after epoch ", epoch_));
  epoch_ = epochs_[id] = epoch;
  // A job that is over gives its workers their grace period, and no round follows.
  for (const auto& [host, round] : charter_.end ? Running() : running_()) {
    Broken(absl::StrCat("workers of round ", round, " run on ", host, " when ", id, " begins to lead"));
  }
  const std::optional<Round> known = machine == nullptr ? std::nullopt : machine->round();
  if (round_ && (!known || known->value() < *round_))
    Broken(absl::StrCat(id, " does not know round ", *round_, ", which was started"));
  if (machine != nullptr && machine->restarts() < restarts_)
    Broken(absl::StrCat(id, " has forgotten restarts"));
}

void TakeoverRules::Lost(const std::string& id, const std::string& why) {
  if (now() <= disturbed_until_ + kAftermath * lease() || !can_have_leader_()) return;
  Broken(absl::StrCat(id, " lost its lead although nothing was disturbed: ", why));
}

void TakeoverRules::Sent(const std::string& id, const proto::CoordinatorMessage& message) {
  int64_t left = 0;
  if (message.has_welcome()) left = message.welcome().lead_left_ms();
  if (message.has_heard()) left = message.heard().lead_left_ms();
  if (left > 0) {
    if (epochs_[id] != epoch_ || lead_->epoch != epoch_)
      Broken(absl::StrCat(id, " renews fences after epoch ", epochs_[id], ", in which it led"));
    // On the slowest clock a promise lasts longer by a share of its length, so an earlier promise may end after a later one.
    promise_end_ = std::max<TimePoint>(
        promise_end_, now() + milliseconds(left) * 1'000'000 / (1'000'000 - kDriftOfRegistered));
  }
  if (message.has_start()) Started(id, message.start());
  if (message.has_dismiss()) {
    const Dismissal reason = DecodeDismissal(message.dismiss().reason());
    if (EndsTheJob(reason) && !charter_.end)
      Broken(absl::StrCat(id, " dismisses a node because the job is over (", ToString(reason),
                          "), which the register does not know"));
  }
}

void TakeoverRules::Started(const std::string& id, const proto::Start& start) {
  const int64_t round = start.round();
  if (epochs_[id] != epoch_) Broken(absl::StrCat(id, " starts round ", round, " after its lead"));
  if (!has_charter_ || !charter_.round || charter_.round->value() < round ||
      charter_.restarts < start.restart_count())
    Broken(absl::StrCat(id, " starts round ", round, ", which the register does not know"));
  if (start.restart_count() < restarts_) Broken("a count of restarts has decreased");
  restarts_ = start.restart_count();
  if (round_ && round < *round_) Broken(absl::StrCat("round ", round, " starts after round ", *round_));
  if (round_ != round && takeovers_ + hand_overs_ > 0) ++rounds_resumed_;
  round_ = round;
}

void TakeoverRules::Check(bool needs_leader, bool leads) {
  const Running running = running_();
  for (size_t i = 1; i < running.size(); ++i) {
    if (running[i].second == running[0].second) continue;
    Broken(absl::StrCat("workers of round ", running[0].second, " on ", running[0].first, " and of round ",
                        running[i].second, " on ", running[i].first, " run"));
  }
  // A job that is over gives its workers their grace period.
  if (!running.empty() && !charter_.end && now() > promise_end_ + kFenceSlack)
    Broken(absl::StrCat("workers of round ", running[0].second, " run on ", running[0].first,
                        " although the last promise of a coordinator has ended"));
  if (leads || !std::exchange(needs_leader_, needs_leader) || closed()) led_at_ = now();
  const Settings& s = *job_.settings;
  const Duration vote = 2 * s.max_delay + (s.loss_permille > 0 ? kRepetition : Duration::zero());
  const Duration limit = kNoLeader * lease() + (s.voters ? kVotes * vote : Duration::zero());
  if (now() <= std::max(led_at_, disturbed_until_) + limit) return;
  Broken(absl::StrCat("no process has led the job for ", kNoLeader, " leases"));
}

}  // namespace ddprun::sim
