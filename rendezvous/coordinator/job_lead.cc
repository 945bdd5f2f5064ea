#include "rendezvous/coordinator/job_lead.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rendezvous/coordinator/charter_codec.h"

namespace ddprun {
namespace {

// OK if a job can be continued from the register's charter, which is empty if the job is new.
absl::Status CheckCharter(const std::string& run_id, Duration lease, const std::string& encoded) {
  if (encoded.empty()) return absl::OkStatus();
  const absl::StatusOr<Charter> charter = DecodeCharter(run_id, encoded);
  if (!charter.ok() || charter->end || charter->rules.lease == lease) return charter.status();
  return absl::InvalidArgumentError(absl::StrCat(
      "job ", run_id, " has --rdzv-conf=lease_ms=", ToMillis(charter->rules.lease), ", and this node has ",
      ToMillis(lease), ": start all nodes with the same options, or give a new job another --rdzv-id"));
}

// Such a job has not ended by its own.
bool MayBeStartedAgain(Dismissal outcome) {
  return outcome == Dismissal::kJoinTimeout || outcome == Dismissal::kPreempted ||
         outcome == Dismissal::kCoordinatorEnded;
}

}  // namespace

JobLead::JobLead(Parts parts)
    : parts_(std::move(parts)),
      machine_({.lease = parts_.lease,
                .id = parts_.id,
                .address = parts_.address,
                .check = [run_id = parts_.run_id, lease = parts_.lease](const std::string& charter) {
                  return CheckCharter(run_id, lease, charter);
                }}) {}

void JobLead::Seek() {
  if (over_) return parts_.on_over(*over_);
  if (leads()) return parts_.on_leader({.here = true, .epoch = machine_.epoch()});
  Step(Disconnected{});
}

void JobLead::Connected(bool standby) { Step(ddprun::Connected{standby}); }

void JobLead::Withdraw() {
  withdrawn_ = true;
  Step(ddprun::Connected{.standby = false});  // without an effect on a process that leads
}

void JobLead::End(std::function<void()> done) {
  using State = LeadershipMachine::State;
  const bool ends = ending_ || machine_.state() == State::kLeaving || parts_.coordinator->hands_over();
  const bool is_over = machine_.state() == State::kLeading && outcome_;
  ended_ = std::move(done);
  const bool is_written = is_over && !parts_.register_outlives_job;  // the charter is; see Coordinator
  if (abandoned_ || is_written || (!ends && !is_over)) {
    ends_soon_ = true;
    return WakeSoon();
  }
  if (ends) return;
  if (MayBeStartedAgain(*outcome_)) return HandOver(/*forget=*/true);
  ending_ = Lead::State::kClosed;
  WakeSoon();
}

void JobLead::Write(int64_t number, const Charter& charter) {
  DDPRUN_CHECK(number == charters_ + 1, "charter " << number << " follows charter " << charters_);
  charters_ = number;
  outcome_ = charter.end ? std::optional(charter.end->outcome) : std::nullopt;
  if (parts_.before_write && !charter.end) parts_.before_write(/*hands_over=*/false);
  charters_to_write_.push_back(EncodeCharter(parts_.run_id, charter));
  WakeSoon();
}

void JobLead::HandOver(bool forget) {
  ending_ = Lead::State::kLeft;
  if (parts_.before_write) parts_.before_write(/*hands_over=*/true);
  if (forget) {
    ++charters_;
    charters_to_write_.emplace_back();  // the next job of this name begins with nothing
  }
  WakeSoon();
}

Duration JobLead::LeadLeft() const {
  if (!leads()) return Duration::zero();
  return std::max(Duration::zero(), machine_.leads_until() - parts_.boot_now());
}

void JobLead::Complete(proto::Start& start) const {
  start.set_epoch(machine_.epoch());
  if (parts_.complete_start) parts_.complete_start(start);
}

void JobLead::WakeSoon() {
  if (std::exchange(wakes_soon_, true)) return;
  parts_.timer->Set(parts_.timer->Now(), [this] { Wake(); });
}

void JobLead::Wake() {
  wakes_soon_ = false;
  if (ends_soon_) {
    abandoned_ = true;
    if (ended_) std::exchange(ended_, {})();
    return;
  }
  for (std::string& charter : std::exchange(charters_to_write_, {})) Step(CharterChanged{std::move(charter)});
  EndLeadIfWritten();
  Step(LeadershipTick{});
}

void JobLead::EndLeadIfWritten() {
  if (!ending_ || charters_ != written_) return;
  Step(LeaderEnds{*std::exchange(ending_, std::nullopt)});
}

void JobLead::Step(const LeadershipEvent& event) {
  for (const LeadershipEffect& effect : machine_.Step(event, parts_.boot_now())) {
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
  SetTimer();
}

void JobLead::SetTimer() {
  if (wakes_soon_) return;
  const std::optional<BootTime> next = machine_.NextDeadline();
  if (!next) return parts_.timer->Set(std::nullopt, {});
  const Duration left = std::max(Duration::zero(), *next - parts_.boot_now());
  parts_.timer->Set(parts_.timer->Now() + left, [this] { Wake(); });
}

void JobLead::Do(const ReadRegister& e) {
  parts_.charter_register->Read(
      e.limit, [this](absl::StatusOr<RegisterRecord> record) { Step(ReadDone{std::move(record)}); });
}

void JobLead::Do(const SwapRegister& e) {
  if (abandoned_) return;  // the lead ends without its renewal
  parts_.charter_register->Swap(
      {.version = e.version, .exists = e.exists}, e.lead, e.charter, e.limit,
      [this](absl::StatusOr<SwapResult> result) { Step(SwapDone{std::move(result)}); });
}

void JobLead::Do(const FollowLeader& e) {
  parts_.log("leader_found", parts_.run_id, absl::StrCat(e.address, ", epoch ", e.epoch));
  parts_.on_leader({.address = e.address, .epoch = e.epoch});
}

void JobLead::Do(const ddprun::BeginToLead& e) {
  charters_ = written_ = 0;
  ending_.reset();
  outcome_.reset();
  if (withdrawn_) return Step(LeaderEnds{Lead::State::kLeft});  // the swap was in flight
  LeadBegun begun{.run_id = parts_.run_id,
                  .how = e.handed_over ? Takeover::kHandedOver
                         : e.fenced    ? Takeover::kFenced
                                       : Takeover::kUnfenced};
  // LeadershipRules::check has accepted it.
  if (!e.charter.empty()) begun.charter = *DecodeCharter(parts_.run_id, e.charter);
  parts_.log("lead_begun", parts_.run_id,
             absl::StrCat("epoch ", e.epoch,
                          e.charter.empty() ? ", a new job"
                          : e.handed_over   ? ", handed over"
                          : e.fenced        ? ", the last coordinator is lost"
                                            : ", the last coordinator has exited"));
  parts_.coordinator->BeginToLead(std::move(begun), this);
  parts_.on_leader({.here = true, .epoch = e.epoch});
}

void JobLead::Do(const ddprun::CharterWritten& e) {
  written_ = e.number;
  parts_.coordinator->CharterWritten(e.number);
  EndLeadIfWritten();
}

void JobLead::Do(const LeadLost& e) {
  charters_to_write_.clear();
  ending_.reset();
  parts_.log("lead_lost", parts_.run_id, e.why);
  parts_.coordinator->LeadLost();
  if (withdrawn_) Step(ddprun::Connected{.standby = false});
  if (ended_) std::exchange(ended_, {})();
}

void JobLead::Do(const LeadEnded& e) {
  parts_.log("lead_ended", parts_.run_id, e.written ? "" : "the register has not confirmed it");
  parts_.coordinator->HandedOver();
  if (ended_) std::exchange(ended_, {})();
}

void JobLead::Do(const JobIsOver& e) {
  const absl::StatusOr<Charter> charter = DecodeCharter(parts_.run_id, e.charter);
  if (!charter.ok()) return parts_.on_trouble(charter.status());
  over_ = charter->end.value_or(Charter::End{Dismissal::kCoordinatorEnded, "it has ended"});
  parts_.on_over(*over_);
}

void JobLead::Do(const RegisterFails& e) {
  parts_.on_trouble(e.why);
  if (e.lost) parts_.on_lost(e.why);
}

}  // namespace ddprun
