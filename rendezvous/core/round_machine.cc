#include "rendezvous/core/round_machine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/rank_assignment.h"

namespace ddprun {
namespace {

// What happens to the waiting nodes within it is told to them in one text.
constexpr Duration kNoticeDelay = seconds(1);

bool InRound(const Member& m) { return m.phase != Phase::kWaiting; }

std::string Name(const Member& m) { return absl::StrCat("node ", m.info.host, " (", m.info.id, ")"); }

std::string Nodes(int n) { return absl::StrCat(n, n == 1 ? " node" : " nodes"); }

}  // namespace

RoundMachine::RoundMachine(RoundPolicy policy) : policy_(std::move(policy)) {}

RoundEffects RoundMachine::Step(const RoundEvent& event, TimePoint now) {
  // A Step that comes long after it was due means that the coordinator itself stood still: messages that
  // would have renewed the leases may lie unread, so nobody is expelled for that silence.
  if (const auto due = NextDeadline(); due && now > *due + policy_.lease / 4) {
    membership_.RenewAllLeases(now + policy_.lease);
  }
  now_ = now;
  effects_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  if (state_ != State::kClosed) {
    ExpireLeases();
    ExpireJoins();
    ExpireDrain();
    Advance();
  }
  if (notice_end_ && now_ >= *notice_end_) TellWaiters();
  return std::exchange(effects_, {});
}

std::optional<TimePoint> RoundMachine::NextDeadline() const {
  std::optional<TimePoint> next = membership_.next_lease_end();
  const auto consider = [&next](std::optional<TimePoint> t) {
    if (t && (!next || *t < *next)) next = t;
  };
  consider(last_call_end_);
  consider(drain_end_);
  consider(notice_end_);
  if (state_ == State::kGathering && membership_.count(Phase::kWaiting) < policy_.min_nodes) {
    consider(membership_.next_join_end());
  }
  return next;
}

void RoundMachine::On(const NodeJoined& e) {
  const NodeInfo& info = e.info;
  if (state_ == State::kClosed) {
    const std::string why = outcome_.ok() ? "it has succeeded" : std::string(outcome_.message());
    effects_.push_back(
        Dismiss{info.id, absl::FailedPreconditionError(absl::StrCat("the job is closed: ", why))});
    return;
  }
  if (membership_.Find(info.id) != nullptr) {
    effects_.push_back(
        Refuse{info.id, absl::AbortedError(absl::StrCat("node ", info.id, " has already joined"))});
    return;
  }
  if (info.requested_rank) {
    if (*info.requested_rank >= policy_.max_nodes) {
      effects_.push_back(Dismiss{info.id, absl::InvalidArgumentError(absl::StrCat(
                                              "node rank ", *info.requested_rank, " of ", info.host,
                                              " is not below the job's ", Nodes(policy_.max_nodes)))});
      return;
    }
    if (const Member* other = membership_.FindRequested(*info.requested_rank)) {
      if (other->info.host != info.host) {
        effects_.push_back(Dismiss{info.id, absl::InvalidArgumentError(absl::StrCat(
                                                "node rank ", *info.requested_rank, " of ", info.host,
                                                " is already taken by ", Name(*other)))});
        return;
      }
      // The same host again: its earlier life is over, whether or not its lease has noticed.
      const NodeId old = other->info.id;
      const std::string reason = absl::StrCat(Name(*other), " was replaced by its new start ", info.id);
      effects_.push_back(Dismiss{old, absl::AbortedError(reason)});
      Drop(old, "node_replaced", reason);
    }
  }
  const Member& member = membership_.Add(info, now_ + policy_.lease, now_ + policy_.join_timeout);
  NoteIt("node_joined", absl::StrCat(Name(member), " with ", info.nproc, " workers"));
  // The first one hears at once that it waits. Of those who join together all hear once: each of them hearing
  // of each other would be the square of many.
  if (membership_.count(Phase::kWaiting) == 1) {
    notice_end_ = now_;
  } else if (!notice_end_) {
    notice_end_ = now_ + kNoticeDelay;
  }
}

void RoundMachine::On(const NodeHeard& e) {
  if (membership_.Find(e.node) == nullptr) {
    effects_.push_back(
        Refuse{e.node, absl::AbortedError(absl::StrCat("node ", e.node, " is not in the job"))});
    return;
  }
  membership_.RenewLease(e.node, now_ + policy_.lease);
}

const Member* RoundMachine::Speaker(const NodeId& id, Round round) {
  const Member* member = membership_.Find(id);
  if (member == nullptr) {
    effects_.push_back(Refuse{id, absl::AbortedError(absl::StrCat("node ", id, " is not in the job"))});
    return nullptr;
  }
  membership_.RenewLease(id, now_ + policy_.lease);
  if (!InRound(*member) || round != round_) {
    effects_.push_back(
        Refuse{id, absl::AbortedError(absl::StrCat(Name(*member), " spoke of round ", round.value(),
                                                   ", but the job is at round ", round_.value()))});
    return nullptr;
  }
  return member;
}

void RoundMachine::On(const WorkersFailed& e) {
  if (Speaker(e.node, e.round) == nullptr) return;
  if (state_ != State::kRunning) return;  // The round is ending anyway: one failure, one charge.
  NoteIt("workers_failed", e.cause);
  last_failure_ = e.cause;
  if (restarts_ >= policy_.max_restarts) {
    Close(absl::ResourceExhaustedError(absl::StrCat(
        e.cause, "; ",
        policy_.max_restarts == 0 ? "no restart is allowed (--max-restarts=0)"
                                  : absl::StrCat("all ", policy_.max_restarts, " restarts are used up"))));
    return;
  }
  ++restarts_;
  Drain(absl::StrCat(e.cause, "; restart ", restarts_, " of ", policy_.max_restarts));
}

void RoundMachine::On(const WorkersSucceeded& e) {
  const Member* member = Speaker(e.node, e.round);
  if (member == nullptr || member->phase != Phase::kRunning) return;
  membership_.SetPhase(e.node, Phase::kSucceeded);
}

void RoundMachine::On(const NodeReady& e) {
  const Member* member = Speaker(e.node, e.round);
  if (member == nullptr || member->phase != Phase::kStopping) return;
  membership_.SetPhase(e.node, Phase::kWaiting);
  membership_.SetStorePort(e.node, e.store_port);
  membership_.SetJoinEnd(e.node, now_ + policy_.join_timeout);
}

void RoundMachine::On(const NodeLeft& e) {
  if (const Member* member = membership_.Find(e.node)) {
    Drop(e.node, "node_left", absl::StrCat(Name(*member), " left: ", e.reason));
  }
}

void RoundMachine::On(const NodeLost& e) {
  if (const Member* member = membership_.Find(e.node)) {
    Drop(e.node, "node_lost", absl::StrCat(Name(*member), " is lost: ", e.reason));
  }
}

void RoundMachine::On(const CloseRequested& e) {
  if (state_ != State::kClosed) Close(absl::FailedPreconditionError(e.reason));
}

void RoundMachine::Drop(const NodeId& id, absl::string_view event, const std::string& reason) {
  const Phase phase = membership_.Find(id)->phase;
  membership_.Remove(id);
  NoteIt(event, reason);
  const bool had_workers = phase == Phase::kRunning;
  if (state_ == State::kRunning && had_workers) Drain(reason);
  if (membership_.count(Phase::kWaiting) > 0 && !notice_end_) notice_end_ = now_ + kNoticeDelay;
}

void RoundMachine::ExpireLeases() {
  for (const NodeId& id : membership_.ExpiredLeases(now_)) {
    const Member& member = *membership_.Find(id);
    const std::string reason =
        absl::StrCat(Name(member), " has not been heard from for ", ToMillis(policy_.lease),
                     " ms: its lease expired ", (now_ - member.lease_end) / milliseconds(1), " ms ago");
    effects_.push_back(Dismiss{id, absl::AbortedError(reason)});
    Drop(id, "lease_expired", reason);
  }
}

void RoundMachine::ExpireJoins() {
  const int joined = membership_.count(Phase::kWaiting);
  // With min_nodes there the last call decides, and it ends by itself.
  if (state_ != State::kGathering || joined >= policy_.min_nodes) return;
  for (const NodeId& id : membership_.ExpiredJoins(now_)) {
    effects_.push_back(Dismiss{
        id,
        absl::DeadlineExceededError(absl::StrCat(
            "only ", joined, " of at least ", Nodes(policy_.min_nodes), " joined within ",
            policy_.join_timeout / seconds(1),
            " s; start the agents of the other nodes with the same --rdzv-endpoint and --rdzv-id, or raise "
            "--rdzv-conf=join_timeout"))});
    Drop(id, "join_timeout", absl::StrCat("node ", id, " waited ", policy_.join_timeout / seconds(1), " s"));
  }
}

void RoundMachine::ExpireDrain() {
  if (state_ != State::kDraining || now_ < *drain_end_) return;
  std::vector<NodeId> late;
  for (const auto& [id, m] : membership_.members()) {
    if (m.phase == Phase::kStopping) late.push_back(id);
  }
  for (const NodeId& id : late) {
    const std::string reason =
        absl::StrCat(Name(*membership_.Find(id)), " did not stop its workers of round ", round_.value(),
                     " within ", policy_.drain_timeout / seconds(1), " s");
    effects_.push_back(Dismiss{id, absl::AbortedError(reason)});
    Drop(id, "drain_timeout", reason);
  }
}

void RoundMachine::Advance() {
  if (state_ == State::kDraining) AdvanceDraining();
  if (state_ == State::kGathering) AdvanceGathering();
  if (state_ == State::kRunning) AdvanceRunning();
}

void RoundMachine::AdvanceGathering() {
  const int n = membership_.count(Phase::kWaiting);
  if (n < policy_.min_nodes) {
    last_call_end_.reset();
    return;
  }
  if (n >= policy_.max_nodes) return Seal(absl::StrCat("all ", Nodes(policy_.max_nodes), " joined"));
  if (!last_call_end_) {
    last_call_end_ = now_ + (round_ < Round(0) ? policy_.first_last_call : policy_.last_call);
  }
  if (now_ >= *last_call_end_) {
    Seal(absl::StrCat(n, " of at most ", Nodes(policy_.max_nodes), " joined and the last call is over"));
  }
}

void RoundMachine::AdvanceRunning() {
  const int members = membership_.in_round();
  if (membership_.count(Phase::kSucceeded) == members && members > 0) return Close(absl::OkStatus());
  if (members == 0) {
    // The last members had succeeded and are gone, or left: what is left may gather anew.
    state_ = State::kGathering;
    last_call_end_.reset();
    return AdvanceGathering();
  }
  const int newcomers = membership_.count(Phase::kWaiting);
  const bool room = newcomers > 0 && members < policy_.max_nodes && membership_.count(Phase::kSucceeded) == 0;
  if (!room) {
    last_call_end_.reset();
    return;
  }
  if (!last_call_end_) last_call_end_ = now_ + policy_.last_call;
  if (members + newcomers >= policy_.max_nodes || now_ >= *last_call_end_) {
    Drain(absl::StrCat(Nodes(newcomers), " joined the running job"));
  }
}

void RoundMachine::AdvanceDraining() {
  if (membership_.in_round() > 0) return;
  drain_end_.reset();
  last_call_end_.reset();
  if (membership_.count(Phase::kWaiting) >= policy_.min_nodes) {
    return Seal("all members stopped their workers");
  }
  state_ = State::kGathering;
  for (const auto& [id, m] : membership_.members()) membership_.SetJoinEnd(id, now_ + policy_.join_timeout);
  notice_end_ = now_;
  NoteIt("waiting_for_nodes", WaitingText());
}

void RoundMachine::Seal(const std::string& reason) {
  // Nodes that were in the last round come first, then by arrival; those beyond max_nodes wait as spares.
  std::vector<const Member*> chosen;
  for (const auto& [id, m] : membership_.members()) chosen.push_back(&m);
  std::sort(chosen.begin(), chosen.end(), [](const Member* a, const Member* b) {
    return std::pair(!a->rank.has_value(), a->arrival) < std::pair(!b->rank.has_value(), b->arrival);
  });
  if (chosen.size() > static_cast<size_t>(policy_.max_nodes)) chosen.resize(policy_.max_nodes);

  std::vector<RankCandidate> candidates;
  for (const Member* m : chosen) {
    candidates.push_back({m->rank, m->info.requested_rank, m->arrival, m->info.nproc, m->info.role});
  }
  const RankPlan plan = AssignRanks(candidates);
  std::vector<size_t> by_rank(chosen.size());
  for (size_t i = 0; i < chosen.size(); ++i) by_rank[plan.spans[i].group_rank.value()] = i;
  const NodeInfo& master = chosen[by_rank[0]]->info;

  round_ = Round(round_.value() + 1);
  state_ = State::kRunning;
  last_call_end_.reset();
  std::vector<std::pair<NodeId, GroupRank>> sealed;
  for (const size_t i : by_rank) {
    const RankSpan& span = plan.spans[i];
    Assignment assignment{.round = round_,
                          .group_rank = span.group_rank,
                          .group_world_size = static_cast<int>(chosen.size()),
                          .first_rank = span.first_rank,
                          .world_size = plan.world_size,
                          .first_role_rank = span.first_role_rank,
                          .role_world_size = span.role_world_size,
                          .restart_count = restarts_,
                          .master_addr = master.addr,
                          .master_port = master.store_port};
    effects_.push_back(Assign{chosen[i]->info.id, std::move(assignment), reason});
    sealed.emplace_back(chosen[i]->info.id, span.group_rank);
  }
  for (const auto& [id, rank] : sealed) {
    membership_.SetPhase(id, Phase::kRunning);
    membership_.SetRank(id, rank);
  }
  NoteIt("round_sealed",
         absl::StrCat("round ", round_.value(), " with ", Nodes(static_cast<int>(sealed.size())), ", ",
                      plan.world_size, " workers: ", reason));
  notice_end_.reset();
  if (membership_.count(Phase::kWaiting) > 0) notice_end_ = now_;
}

void RoundMachine::Drain(const std::string& reason) {
  state_ = State::kDraining;
  drain_end_ = now_ + policy_.drain_timeout;
  last_call_end_.reset();
  std::vector<NodeId> in_round;
  for (const auto& [id, m] : membership_.members()) {
    if (InRound(m)) in_round.push_back(id);
  }
  for (const NodeId& id : in_round) {
    membership_.SetPhase(id, Phase::kStopping);
    effects_.push_back(StopWorkers{id, round_, reason});
  }
  NoteIt("round_ended", absl::StrCat("round ", round_.value(), ": ", reason));
}

void RoundMachine::Close(const absl::Status& outcome) {
  for (const auto& [id, m] : membership_.members()) effects_.push_back(Dismiss{id, outcome});
  NoteIt("job_closed", outcome.ok() ? "all workers succeeded" : std::string(outcome.message()));
  membership_ = Membership();
  outcome_ = outcome;
  state_ = State::kClosed;
  last_call_end_.reset();
  drain_end_.reset();
  notice_end_.reset();
}

void RoundMachine::TellWaiters() {
  notice_end_.reset();
  const std::string text = WaitingText();
  for (const auto& [id, m] : membership_.members()) {
    if (m.phase == Phase::kWaiting) effects_.push_back(TellWaiting{id, text});
  }
}

std::string RoundMachine::WaitingText() const {
  const int waiting = membership_.count(Phase::kWaiting);
  switch (state_) {
    case State::kGathering: {
      const std::string joined = absl::StrCat(waiting, "/", policy_.max_nodes, " nodes joined");
      if (waiting < policy_.min_nodes) {
        return absl::StrCat(joined, ", waiting for at least ", policy_.min_nodes - waiting,
                            " more (not heard from)");
      }
      return absl::StrCat(joined, ", enough to start; last call for ", policy_.max_nodes - waiting, " more");
    }
    case State::kRunning:
      if (membership_.in_round() >= policy_.max_nodes) {
        return absl::StrCat("the job runs on its maximum of ", Nodes(policy_.max_nodes),
                            "; this node is a spare and takes over when one is lost");
      }
      return absl::StrCat("the job runs on ", Nodes(membership_.in_round()),
                          "; this node joins it at the next round");
    case State::kDraining:
      return absl::StrCat("waiting for ", Nodes(membership_.in_round()), " to stop the workers of round ",
                          round_.value());
    case State::kClosed:
      break;
  }
  return "the job is closed";
}

void RoundMachine::NoteIt(absl::string_view event, const std::string& reason) {
  effects_.push_back(Note{std::string(event), reason});
}

}  // namespace ddprun
