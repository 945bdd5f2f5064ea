#include "rendezvous/voters/founding.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace ddprun {
namespace {

// Between two rounds of requests. A request may take as long.
constexpr Duration kPause = milliseconds(200);

}  // namespace

Founding::Founding(Voter self, const std::vector<std::string>& addresses, VoteClient* client,
                   std::unique_ptr<WakeTimer> timer)
    : self_(std::move(self)), client_(*client), timer_(std::move(timer)) {
  for (const std::string& address : addresses) {
    founders_.push_back({.voter = {.id = address == self_.address ? self_.id : "", .address = address}});
  }
}

void Founding::Start(Duration limit, std::function<void(absl::StatusOr<VoterSet>)> done) {
  limit_ = limit;
  end_ = timer_->Now() + limit;
  done_ = std::move(done);
  timer_->Set(timer_->Now(), [this] { Wake(); });
}

void Founding::Wake() {
  std::string silent;
  for (size_t i = 0; i < founders_.size(); ++i) {
    const Founder& founder = founders_[i];
    if (!founder.voter.id.empty()) continue;
    absl::StrAppend(&silent, silent.empty() ? "" : "; ", founder.voter.address, ": ",
                    founder.error.ok() ? "no answer" : founder.error.message());
  }
  if (timer_->Now() >= end_) {
    return Finish(absl::UnavailableError(
        absl::StrCat("not all endpoints of the job have answered within ", InSeconds(limit_), ": ", silent,
                     ". An agent, or `ddprun --store-only`, must run at each of them when the job starts")));
  }
  timer_->Set(std::min(end_, timer_->Now() + kPause), [this] { Wake(); });
  for (size_t i = 0; i < founders_.size(); ++i) {
    if (founders_[i].voter.address != self_.address) Ask(i);
  }
}

void Founding::Ask(size_t founder) {
  client_.Send(founders_[founder].voter.address, {.wants_voters = true}, kPause,
               alive_.Guard([this, founder](const absl::StatusOr<VoteReply>& reply) {
                 if (done_) Answered(founder, reply);
               }));
}

void Founding::Answered(size_t founder, const absl::StatusOr<VoteReply>& reply) {
  founders_[founder].error = reply.status();
  if (!reply.ok()) return;
  if (reply->voters) return Finish(*reply->voters);
  founders_[founder].voter.id = reply->voter;
  founders_[founder].voter.witness = reply->witness;
  VoterSet all{.number = 1, .now = {.tie_breaker = founders_.front().voter.id}};
  for (const Founder& each : founders_) {
    if (each.voter.id.empty()) return;
    all.now.voters.push_back(each.voter);
  }
  Finish(all);
}

void Founding::Learn(const VoterSet& voters) {
  if (done_) Finish(voters);
}

void Founding::Finish(absl::StatusOr<VoterSet> result) {
  timer_->Set(std::nullopt, {});
  // The last use of this object.
  std::exchange(done_, nullptr)(std::move(result));
}

}  // namespace ddprun
