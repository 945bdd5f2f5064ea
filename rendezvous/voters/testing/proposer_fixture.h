// A proposer whose requests the test delivers by hand to real acceptors.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/voters/acceptor.h"
#include "rendezvous/voters/proposer.h"
#include "rendezvous/voters/vote.h"
#include "rendezvous/voters/voter_set.h"

namespace ddprun {

// The process a1 at address a. Further processes b1 to h1 at the addresses b to h have acceptors. Lists of addresses are texts:
// "a b c".
class ProposerFixture : public ::testing::Test {
 protected:
  static constexpr Duration kLimit = seconds(2);

  ProposerFixture() {
    for (const std::string& address : List("a b c d e f g h")) Start(address, 1);
    Know("a b c");
  }

  static std::vector<std::string> List(const std::string& text) {
    return absl::StrSplit(text, ' ', absl::SkipEmpty());
  }
  // The first address is that of the tie breaker.
  static VoterGroup Group(const std::string& addresses) {
    VoterGroup group;
    for (const std::string& address : List(addresses)) group.voters.push_back({address + "1", address});
    group.tie_breaker = group.voters.front().id;
    return group;
  }
  // Replaces the proposer by one that knows only these voters.
  void Know(const std::string& addresses, int64_t number = 1) {
    me_ = std::make_unique<Proposer>(ProposerRules{.self = {"a1", "a"}, .seed = 1},
                                     VoterSet{.number = number, .now = Group(addresses)});
  }
  // The nth process at this address replaces the one before.
  void Start(const std::string& address, int n) {
    acceptors_[address] = std::make_unique<Acceptor>(absl::StrCat(address, n));
  }

  // --- Calls

  void Read() { Step(ReadWanted{.end = now_ + kLimit}); }
  void Swap(int64_t version, const std::string& lead, std::optional<std::string> charter = {},
            const std::string& candidates = "", Duration limit = kLimit) {
    Step(SwapWanted{.expected = {.version = version, .exists = version > 0},
                    .lead = lead,
                    .charter = std::move(charter),
                    .candidates = List(candidates),
                    .end = now_ + limit});
  }
  // Removes and returns the result: "swapped 3 LEAD CHARTER", "found 3 LEAD CHARTER", "found none" or the error.
  std::string Result() {
    const auto done = std::exchange(done_, {});
    if (!done) return "";
    if (!done->ok()) return std::string(done->status().message());
    const RegisterRecord& current = (*done)->current;
    if (!current.exists) return "found none";
    return absl::StrCat((*done)->swapped ? "swapped " : "found ", current.version, " ", current.lead, " ",
                        current.charter);
  }
  // A swap whose requests all arrive.
  void Write(int64_t version, const std::string& lead, std::optional<std::string> charter = {},
             const std::string& candidates = "") {
    all_arrive_ = true;
    Swap(version, lead, std::move(charter), candidates);
    DeliverAll();
    all_arrive_ = false;
    EXPECT_THAT(Result(), ::testing::StartsWith(absl::StrCat("swapped ", version + 1, " ", lead)));
    sent_.clear();
  }
  // A read or, with a lead, a swap by another process, which reaches only these voters.
  // Takes no time.
  std::string Other(const std::string& reached, const std::string& lead = "",
                    const std::string& candidates = "") {
    Proposer other({.self = {absl::StrCat("z", ++others_), "z"}, .seed = 2}, me_->voters());
    const TimePoint end = now_ + kLimit;
    const absl::StatusOr<SwapResult> read = Run(other, reached, ReadWanted{end});
    if (!read.ok()) return std::string(read.status().message());
    if (lead.empty()) return read->current.lead;
    SwapWanted wanted{.expected = read->current, .lead = lead, .end = end};
    wanted.candidates = List(candidates);
    Proposer writer({.self = {absl::StrCat("y", others_), "y"}, .seed = 3}, other.voters());
    const absl::StatusOr<SwapResult> swap = Run(writer, reached, wanted);
    return swap.ok() && swap->swapped ? "swapped" : std::string(swap.status().message());
  }
  // Another process asks these voters for a promise.
  void OtherPrepares(const std::string& addresses) {
    ++other_counter_;
    for (const std::string& address : List(addresses)) {
      ASSERT_TRUE(Vote(address, {.kind = VoteRequest::Kind::kPrepare, .ballot = {other_counter_, "z"}}).ok());
    }
  }

  // --- Requests

  // Removes and returns what was sent since the last time: "prepare a b c, accept a".
  std::string Sent() {
    std::string text;
    std::string last;
    for (const SendVote& vote : std::exchange(sent_, {})) {
      const char* const kinds[] = {"ask", "prepare", "accept"};
      const std::string kind = kinds[static_cast<int>(vote.request.kind)];
      if (kind != last) absl::StrAppend(&text, text.empty() ? "" : ", ", kind);
      absl::StrAppend(&text, " ", vote.address);
      last = kind;
    }
    return text;
  }
  const VoteRequest& Last(const std::string& address) const { return pending_.at(address).request; }
  bool Pending(const std::string& address) const { return pending_.contains(address); }

  // The newest request to each arrives, and its answer.
  void Deliver(const std::string& addresses) {
    for (const std::string& address : List(addresses)) {
      const SendVote vote = Take(address);
      Step(VoteDone{vote.number, Vote(address, vote.request)});
    }
  }
  // Requests to these addresses arrive, and their answers, until nothing is sent any more.
  void DeliverAll(const std::string& addresses = "a b c d e f g h") {
    for (bool more = true; more;) {
      more = false;
      for (const std::string& address : List(addresses)) {
        if (!Pending(address)) continue;
        more = true;
        Deliver(address);
      }
    }
  }
  // Lets these voters, which do not agree, be asked until promises are asked for.
  void AskUntilPrepare(const std::string& addresses) {
    const auto prepares = [this] {
      return !sent_.empty() && sent_.back().request.kind == VoteRequest::Kind::kPrepare;
    };
    for (int i = 0; !prepares(); ++i) {
      ASSERT_LT(i, 10);
      sent_.clear();
      for (const std::string& address : List(addresses)) {
        if (!prepares() && Pending(address)) Deliver(address);
      }
      if (!prepares()) Wait();
    }
  }
  // The newest request to each arrives. The connection breaks before the answer.
  void LoseAnswer(const std::string& addresses) {
    for (const std::string& address : List(addresses)) {
      const SendVote vote = Take(address);
      ASSERT_TRUE(Vote(address, vote.request).ok());
      Step(VoteDone{vote.number, absl::UnavailableError("connection closed")});
    }
  }
  void Lose(const std::string& addresses) {
    for (const std::string& address : List(addresses)) Take(address);
  }
  void Fail(const std::string& addresses, const absl::Status& error = absl::UnavailableError("refused")) {
    for (const std::string& address : List(addresses)) Step(VoteDone{Take(address).number, error});
  }
  void AnswerAs(const std::string& address, const VoteReply& reply) {
    Step(VoteDone{Take(address).number, reply});
  }
  void After(Duration d) {
    now_ += d;
    Step(ProposerTick{});
  }
  // Lets the time pass until the machine does something.
  void Wait() {
    ASSERT_TRUE(me_->NextDeadline().has_value());
    ASSERT_GE(*me_->NextDeadline(), now_);
    After(*me_->NextDeadline() - now_);
  }

  absl::StatusOr<VoteReply> Vote(const std::string& address, const VoteRequest& request) {
    return acceptors_.at(address)->Vote(request);
  }
  // What the voter has accepted last: "3 LEAD CHARTER".
  std::string Has(const std::string& address) {
    const VoteReply reply = Vote(address, {}).value();
    if (!reply.record) return "none";
    const RegisterRecord& record = reply.record->record;
    return absl::StrCat(record.version, " ", record.lead, " ", record.charter);
  }
  // The known voters: "2: a b c".
  std::string Known() const { return Text(me_->voters()); }
  static std::string Text(const VoterSet& set) {
    std::string text = absl::StrCat(set.number, ":");
    for (const Voter& voter : set.now.voters) absl::StrAppend(&text, " ", voter.address);
    if (set.before) absl::StrAppend(&text, " before");
    if (!set.before) return text;
    for (const Voter& voter : set.before->voters) absl::StrAppend(&text, " ", voter.address);
    return text;
  }

  void Step(const ProposerEvent& event) {
    for (const ProposerEffect& effect : me_->Step(event, now_)) {
      if (const auto* vote = std::get_if<SendVote>(&effect)) {
        EXPECT_GT(vote->limit, Duration(0));
        sent_.push_back(*vote);
        pending_[vote->address] = *vote;
      } else {
        EXPECT_FALSE(done_.has_value()) << "two results";
        done_ = std::get<CallDone>(effect).result;
        for (const auto& [address, late] : std::exchange(pending_, {})) {
          if (all_arrive_) static_cast<void>(Vote(address, late.request));
        }
      }
    }
  }

  TimePoint now_ = TimePoint(seconds(1000));
  std::unique_ptr<Proposer> me_;

 private:
  SendVote Take(const std::string& address) {
    EXPECT_TRUE(Pending(address)) << "nothing was sent to " << address;
    const SendVote vote = pending_[address];
    pending_.erase(address);
    return vote;
  }

  absl::StatusOr<SwapResult> Run(Proposer& other, const std::string& reached, const ProposerEvent& event) {
    const std::vector<std::string> addresses = List(reached);
    const std::set<std::string> there(addresses.begin(), addresses.end());
    TimePoint now = now_;
    std::vector<ProposerEffect> queue = other.Step(event, now);
    for (size_t i = 0;; ++i) {
      while (i >= queue.size()) {
        now = *other.NextDeadline();
        for (auto& effect : other.Step(ProposerTick{}, now)) queue.push_back(std::move(effect));
      }
      if (const auto* done = std::get_if<CallDone>(&queue[i])) return done->result;
      const SendVote vote = std::get<SendVote>(queue[i]);
      const absl::StatusOr<VoteReply> reply = there.contains(vote.address)
                                                  ? Vote(vote.address, vote.request)
                                                  : absl::UnavailableError("not reached");
      for (auto& effect : other.Step(VoteDone{vote.number, reply}, now)) queue.push_back(std::move(effect));
    }
  }

  std::map<std::string, std::unique_ptr<Acceptor>> acceptors_;  // by address
  std::vector<SendVote> sent_;
  std::map<std::string, SendVote> pending_;  // by address
  std::optional<absl::StatusOr<SwapResult>> done_;
  bool all_arrive_ = false;
  int others_ = 0;
  int64_t other_counter_ = 1000;
};

}  // namespace ddprun
