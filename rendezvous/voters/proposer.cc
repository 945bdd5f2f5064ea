#include "rendezvous/voters/proposer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace ddprun {
namespace {

// A request that has failed is repeated after this time.
constexpr Duration kAgain = milliseconds(20);
// If the voters of the first quorum differ, kAsk waits for the others as long as that quorum has taken, but at least this time.
constexpr Duration kSettle = milliseconds(5);
// If voters differ, they are asked so often before this process competes with the one that may be writing.
constexpr int kAsks = 4;
// An accept that a voter has refused waits so long for the others: those of them that have exited do not answer.
constexpr Duration kRefused = milliseconds(50);
// A change of the voters waits so long for the candidates, and then once more: this process may have been suspended during the
// first wait, so that it has not read the answers.
constexpr Duration kProbe = milliseconds(150);
// A candidate that has not answered is probed again after the first of these times. The time doubles up to the second one: a connection
// may recover a moment after its network, and a firewall is permanent.
constexpr Duration kFirstSilence = seconds(1);
constexpr Duration kLongestSilence = seconds(60);
// The pause after another process had a higher ballot is random, up to this time or that of a round trip. It doubles with each of
// the first pauses of the call.
constexpr Duration kFirstPause = milliseconds(4);
constexpr int kDoublings = 5;

}  // namespace

Proposer::Proposer(ProposerRules rules, VoterSet voters)
    : rules_(std::move(rules)), random_(rules_.seed), voters_(std::move(voters)) {}

void Proposer::Learn(const VoterSet& voters) {
  DDPRUN_CHECK(!call_, "a call is in progress");
  if (voters.number <= voters_.number) return;
  voters_ = voters;
  prepared_.reset();
}

ProposerEffects Proposer::Step(const ProposerEvent& event, TimePoint now) {
  DDPRUN_CHECK(now >= now_, "now goes back by " << (now_ - now) / milliseconds(1) << " ms");
  now_ = now;
  effects_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  Advance();
  return std::exchange(effects_, {});
}

std::optional<TimePoint> Proposer::NextDeadline() const {
  if (!call_) return std::nullopt;
  TimePoint next = call_->wanted.end;
  if (call_->phase_end) next = std::min(next, *call_->phase_end);
  for (const auto& [key, answer] : call_->answers) {
    if (answer.again) next = std::min(next, *answer.again);
  }
  return next;
}

// --- Events

void Proposer::On(const ReadWanted& e) {
  Call call;
  call.wanted.end = e.end;
  Begin(std::move(call));
}

void Proposer::On(const SwapWanted& e) {
  Call call;
  call.swap = true;
  call.wanted = e;
  Begin(std::move(call));
}

void Proposer::Begin(Call call) {
  DDPRUN_CHECK(!call_, "a call is in progress");
  call_ = std::move(call);
  if (voters_.number == 0)
    return Finish(absl::UnavailableError("no voter of the job is known: no round has started"));
  if (!call_->swap || !prepared_ || prepared_->record.record.version != call_->wanted.expected.version ||
      !call_->wanted.expected.exists) {
    return StartAsk();
  }
  call_->ballot = prepared_->ballot;
  call_->found = std::move(prepared_->record);
  prepared_.reset();  // a ballot is of one record
  Propose();
}

void Proposer::On(const VoteDone& e) {
  if (e.reply.ok()) counter_ = std::max(counter_, e.reply->promised.counter);
  if (!call_) return;
  const auto found = std::find_if(call_->answers.begin(), call_->answers.end(),
                                  [&](const auto& item) { return item.second.in_flight == e.number; });
  if (found == call_->answers.end()) return;  // of an earlier phase
  Answer& answer = found->second;
  answer.in_flight = 0;
  if (!e.reply.ok()) {
    answer.error = e.reply.status();
    if (absl::IsNotFound(answer.error)) {
      if (!answer.id.empty()) exited_.insert(answer.id);
    } else {
      answer.again = now_ + kAgain;
    }
    return;
  }
  answer.error = absl::OkStatus();
  if (e.reply->needs_charter && !std::exchange(answer.with_charter, true)) return Send(answer);
  VoteReply reply = *e.reply;
  if (reply.record) {
    const Ballot& written = reply.record->charter_written;
    if (!reply.charter_omitted) {
      if (!cached_ || cached_->written < written) cached_ = {written, reply.record->record.charter};
    } else if (cached_ && cached_->written == written) {
      reply.record->record.charter = cached_->charter;
    } else {
      return Send(answer);  // a newer charter has replaced that one meanwhile
    }
  }
  answer.id = reply.voter;
  if (call_->phase == Phase::kAccept && answer.id == rules_.self.id && reply.granted) behind_ = false;
  answer.reply = std::move(reply);
}

// --- Replies

template <typename F>
std::set<std::string> Proposer::Ids(F fits) const {
  std::set<std::string> ids;
  for (const auto& [key, answer] : call_->answers) {
    if (answer.reply && fits(*answer.reply)) ids.insert(answer.id);
  }
  return ids;
}

template <typename F>
const VoteReply* Proposer::Newest(F fits) const {
  const VoteReply* newest = nullptr;
  for (const auto& [key, answer] : call_->answers) {
    if (!answer.reply || !answer.reply->record || !fits(*answer.reply)) continue;
    if (newest == nullptr || newest->accepted < answer.reply->accepted) newest = &*answer.reply;
  }
  return newest;
}

bool Proposer::AllAnswered() const {
  return std::all_of(call_->answers.begin(), call_->answers.end(), [this](const auto& item) {
    return item.second.reply || exited_.contains(item.second.id);
  });
}

void Proposer::Adopt(const VoterSet& voters) {
  const VoterSet chosen = CertainlyChosen(voters);
  if (chosen.number > voters_.number) voters_ = chosen;
}

// --- What is due

void Proposer::Advance() {
  if (!call_) return;
  if (now_ >= call_->wanted.end) return Finish(TimedOut());
  SendDue();
  switch (call_->phase) {
    case Phase::kAsk:
      return AdvanceAsk();
    case Phase::kPrepare:
      return AdvancePrepare();
    case Phase::kProbe:
      return AdvanceProbe();
    case Phase::kAccept:
      return AdvanceAccept();
    case Phase::kPause:
      if (now_ < *call_->phase_end) return;
      return StartAsk();
  }
}

void Proposer::StartAsk() {
  Enter(Phase::kAsk);
  Ask(voters_);
}

void Proposer::AdvanceAsk() {
  const auto any = [](const VoteReply&) { return true; };
  const VoteReply* const newest = Newest(any);
  const VotedRecord* const record = newest == nullptr ? nullptr : &*newest->record;
  if (record != nullptr) {
    Adopt(record->voters);
    Ask(record->voters);
    Ask(voters_);
  }
  const auto same = [&](const VoteReply& reply) {
    return record == nullptr ? !reply.record : reply.accepted == newest->accepted;
  };
  const auto quorum = [&](const std::set<std::string>& ids) {
    return Decide(voters_, ids) && (record == nullptr || Decide(record->voters, ids));
  };
  if (quorum(Ids(same))) {
    asked_ = 0;
    const RegisterRecord current = record == nullptr ? RegisterRecord() : record->record;
    const Fate fate = FateOfSwap(record);
    if (fate == Fate::kOpen) return StartPrepare();
    if (fate == Fate::kUnknown) return FinishUnknown();
    return Finish(SwapResult{.swapped = fate == Fate::kWritten, .current = current});
  }
  if (!quorum(Ids(any))) {
    call_->phase_end.reset();  // a voter that was unknown has to answer, too
    return static_cast<void>(FinishIfLost(voters_));
  }
  // While another process writes, the newest record changes; only one that stays has to be written again. There is one, because the
  // voters differ.
  const Ballot seen = newest->accepted;
  const bool again = seen == asked_ballot_;
  if (again && asked_ >= kAsks) return StartPrepare();  // an earlier call has ended in kPrepare or kAccept
  if (!call_->phase_end) call_->phase_end = now_ + std::max(kSettle + Duration(), now_ - call_->phase_began);
  const TimePoint settled = *call_->phase_end;
  if (!AllAnswered() && now_ < settled) return;
  asked_ = again ? asked_ + 1 : 1;
  asked_ballot_ = seen;
  if (asked_ >= kAsks) return StartPrepare();
  call_->obstacle = "the voters have different records";
  Enter(Phase::kPause);
  call_->phase_end = std::max(settled, now_ + kSettle);
}

void Proposer::StartPrepare() {
  prepared_.reset();
  call_->ballot = {++counter_, rules_.self.id};
  call_->found.reset();
  call_->probed = false;
  Enter(Phase::kPrepare);
  Ask(voters_);
}

void Proposer::AdvancePrepare() {
  const auto granted = [](const VoteReply& reply) { return reply.granted; };
  if (!Ids([](const VoteReply& reply) { return !reply.granted; }).empty()) {
    return Pause("another process writes at the same time");
  }
  const VoteReply* const newest = Newest(granted);
  if (newest != nullptr) {
    Adopt(newest->record->voters);
    Ask(newest->record->voters);
    Ask(voters_);
  }
  const std::set<std::string> ids = Ids(granted);
  if (!Decide(voters_, ids) || (newest != nullptr && !Decide(newest->record->voters, ids)))
    return static_cast<void>(FinishIfLost(voters_));
  if (newest != nullptr) call_->found = newest->record;
  Propose();
}

Proposer::Fate Proposer::FateOfSwap(const VotedRecord* newest) const {
  if (!call_->swap) return Fate::kLost;
  const RegisterRecord current = newest == nullptr ? RegisterRecord() : newest->record;
  const RegisterRecord& expected = call_->wanted.expected;
  if (newest != nullptr && call_->written && newest->written == *call_->written) return Fate::kWritten;
  if (current.exists == expected.exists && (!current.exists || current.version == expected.version))
    return Fate::kOpen;
  // Each version has one record. If the next one is another's, this write has not happened, and will not.
  return !call_->written || current.version <= expected.version + 1 ? Fate::kLost : Fate::kUnknown;
}

void Proposer::Propose() {
  Call& call = *call_;
  const Fate fate = FateOfSwap(call.found ? &*call.found : nullptr);
  call.swapped = fate == Fate::kOpen || fate == Fate::kWritten;
  if (fate == Fate::kUnknown) return FinishUnknown();
  if (fate != Fate::kOpen) {
    if (!call.found) return Finish(SwapResult{});
    call.proposal = *call.found;
    return StartAccept();
  }
  call.proposal = call.found.value_or(VotedRecord{.voters = voters_});
  if (!call.written) call.written = call.ballot;
  call.proposal.written = *call.written;
  ++call.proposal.record.version;
  call.proposal.record.exists = true;
  call.proposal.record.lead = call.wanted.lead;
  if (call.wanted.charter) {
    call.proposal.record.charter = *call.wanted.charter;
    call.proposal.charter_written = *call.written;
  }
  if (!call.wanted.candidates.empty() && !call.probed && !call.proposal.voters.before) return StartProbe();
  StartAccept();
}

void Proposer::StartProbe() {
  call_->probed = true;
  call_->waited = false;
  Enter(Phase::kProbe);
  WaitForProbes();
  const std::vector<Voter>& voters = call_->proposal.voters.now.voters;
  for (const std::string& address : call_->wanted.candidates) {
    if (call_->answers.size() >= kMaxVoters) break;
    const auto silent = silent_.find(address);
    const bool is_voter = std::any_of(voters.begin(), voters.end(),
                                      [&](const Voter& voter) { return voter.address == address; });
    if (!is_voter && silent != silent_.end() && now_ < silent->second.until) continue;
    const auto [item, added] = call_->answers.try_emplace(address, Answer{.address = address});
    if (added) Send(item->second);
  }
}

void Proposer::WaitForProbes() {
  // Half of the time remains for the accept.
  call_->phase_end = now_ + std::min(kProbe + Duration(), (call_->wanted.end - now_) / 2);
}

VoterGroup Proposer::Group() const {
  const VoterGroup& old = call_->proposal.voters.now;
  VoterGroup group;
  std::set<std::string> members;
  std::set<std::string> answered;
  for (const std::string& address : call_->wanted.candidates) {
    const auto answer = call_->answers.find(address);
    if (answer == call_->answers.end()) continue;
    Voter voter{answer->second.id, address};
    if (answer->second.reply) {
      voter.witness = answer->second.reply->witness;
      // The process that hands the lead over is not among the candidates.
      if (answered.empty() || voter.id == rules_.self.id) group.tie_breaker = voter.id;
      answered.insert(voter.id);
    } else {
      const auto silent = std::find_if(old.voters.begin(), old.voters.end(),
                                       [&](const Voter& v) { return v.address == address; });
      if (silent == old.voters.end()) continue;
      voter = *silent;
    }
    if (members.insert(voter.id).second) group.voters.push_back(voter);  // a process may have two addresses
  }
  return IsQuorum(group, answered) ? group : old;
}

void Proposer::AdvanceProbe() {
  if (!AllAnswered()) {
    if (now_ < *call_->phase_end) return;
    if (!std::exchange(call_->waited, true)) return WaitForProbes();
  }
  for (const auto& [address, answer] : call_->answers) {
    if (answer.reply) {
      silent_.erase(address);
    } else {
      Silence& silence = silent_[address];
      silence.pause = std::clamp<Duration>(2 * silence.pause, kFirstSilence, kLongestSilence);
      silence.until = now_ + silence.pause;
    }
  }
  const VoterGroup group = Group();
  VoterSet& voters = call_->proposal.voters;
  if (group != voters.now) voters = {.number = voters.number + 1, .now = group, .before = voters.now};
  StartAccept();
}

void Proposer::StartAccept() {
  // A voter that has the charter which the record keeps is not sent it again.
  const bool is_new = call_->proposal.charter_written == call_->written;
  Enter(Phase::kAccept);
  behind_ = true;
  std::vector<Voter> voters = AllVoters(call_->proposal.voters);
  for (const Voter& voter : AllVoters(call_->found ? call_->found->voters : voters_)) voters.push_back(voter);
  for (const Voter& voter : voters) {
    const auto [item, added] = call_->answers.try_emplace(
        voter.id, Answer{.id = voter.id, .address = voter.address, .with_charter = is_new});
    if (added) Send(item->second);
  }
}

void Proposer::AdvanceAccept() {
  const VoterSet& base = call_->found ? call_->found->voters : voters_;
  const auto quorum = [&](const std::set<std::string>& ids) {
    return Decide(base, ids) && Decide(call_->proposal.voters, ids);
  };
  if (quorum(Ids([](const VoteReply& reply) { return reply.granted; }))) return Chosen();
  if (FinishIfLost(base)) return;
  std::set<std::string> may_grant;
  for (const auto& [id, answer] : call_->answers) {
    if (!answer.reply || answer.reply->granted) may_grant.insert(id);
  }
  if (may_grant.size() == call_->answers.size()) return;
  if (!call_->phase_end) call_->phase_end = now_ + kRefused;
  if (now_ >= *call_->phase_end || !quorum(may_grant)) Pause("another process writes at the same time");
}

void Proposer::Chosen() {
  Call& call = *call_;
  cached_ = {call.proposal.charter_written, call.proposal.record.charter};
  Adopt(call.proposal.voters);
  const Ballot next = {call.ballot.counter + 1, rules_.self.id};
  counter_ = std::max(counter_, next.counter);
  prepared_.reset();
  const auto promised = [&](const VoteReply& reply) { return reply.granted && reply.promised == next; };
  if (Decide(call.proposal.voters, Ids(promised))) prepared_ = {next, call.proposal};
  if (!call.proposal.voters.before) {
    return Finish(SwapResult{.swapped = call.swapped, .current = call.proposal.record});
  }
  // From now on the new voters decide alone.
  if (!prepared_) return StartPrepare();
  prepared_.reset();
  call.ballot = next;
  call.found = call.proposal;
  call.proposal.voters.before.reset();
  StartAccept();
}

bool Proposer::Decide(const VoterSet& set, const std::set<std::string>& ids) const {
  if (IsQuorum(set, ids)) return true;
  const SwapWanted& wanted = call_->wanted;
  if (behind_ || !wanted.leads_until || now_ >= *wanted.leads_until || !ids.contains(rules_.self.id))
    return false;
  const auto is_left = [&](const VoterGroup& group) {
    const auto is_own = [&](const Voter& voter) { return voter.id == rules_.self.id; };
    return std::any_of(group.voters.begin(), group.voters.end(), is_own) &&
           std::all_of(group.voters.begin(), group.voters.end(), [&](const Voter& voter) {
             return ids.contains(voter.id) || (exited_.contains(voter.id) && wanted.Ended(voter));
           });
  };
  return is_left(set.now) && (!set.before || is_left(*set.before));
}

bool Proposer::FinishIfLost(const VoterSet& set) {
  const auto own = call_->answers.find(rules_.self.id);
  if (own != call_->answers.end() && !own->second.reply) return false;  // see Decide
  std::set<std::string> left;
  std::string lost;
  for (const Voter& voter : AllVoters(set)) {
    if (!exited_.contains(voter.id)) {
      left.insert(voter.id);
    } else {
      absl::StrAppend(&lost, lost.empty() ? "" : ", ", voter.address);
    }
  }
  if (Decide(set, left)) return false;
  Finish(absl::DataLossError(absl::StrCat("so many of the job's voters have exited (", lost,
                                          ") that those which are left do not know how far the job is")));
  return true;
}

void Proposer::Pause(std::string why) {
  prepared_.reset();
  call_->obstacle = std::move(why);
  asked_ = 0;
  const Duration unit = std::max(kFirstPause + Duration(), now_ - call_->phase_began);
  const Duration longest =
      std::min(unit * (int64_t{1} << std::min(call_->pauses++, kDoublings)), (call_->wanted.end - now_) / 2);
  Enter(Phase::kPause);
  call_->phase_end =
      now_ + Duration(static_cast<int64_t>(random_() % (static_cast<uint64_t>(longest.count()) + 1)));
}

void Proposer::Finish(absl::StatusOr<SwapResult> result) {
  call_.reset();
  effects_.emplace_back(CallDone{std::move(result)});
}

void Proposer::FinishUnknown() {
  Finish(
      absl::UnavailableError("another process has written to the register at the same time; this write may "
                             "have happened before"));
}

absl::Status Proposer::TimedOut() const {
  constexpr char kError[] = "no quorum of the job's voters: ";
  if (call_->answers.empty()) return absl::DeadlineExceededError(absl::StrCat(kError, call_->obstacle));
  std::string text;
  int answered = 0;
  for (const auto& [id, answer] : call_->answers) {
    if (answer.reply) {
      ++answered;
      continue;
    }
    absl::StrAppend(&text, text.empty() ? "" : "; ", answer.address, ": ",
                    answer.error.ok() ? "no answer" : answer.error.message());
  }
  if (text.empty()) text = call_->obstacle;
  return absl::DeadlineExceededError(absl::StrCat(kError, answered, " of ", call_->answers.size(),
                                                  " have answered", text.empty() ? "" : ": ", text));
}

}  // namespace ddprun
