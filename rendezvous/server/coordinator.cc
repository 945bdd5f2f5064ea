#include "rendezvous/server/coordinator.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "boost/json/array.hpp"
#include "proto/protocol_version.h"
#include "rendezvous/server/round_codec.h"

namespace ddprun {
namespace {

absl::string_view Name(RoundMachine::State state) {
  switch (state) {
    case RoundMachine::State::kGathering:
      return "gathering";
    case RoundMachine::State::kRunning:
      return "running";
    case RoundMachine::State::kDraining:
      return "draining";
    case RoundMachine::State::kClosed:
      return "closed";
  }
  return "?";
}

absl::string_view Name(Phase phase) {
  switch (phase) {
    case Phase::kWaiting:
      return "waiting";
    case Phase::kRunning:
      return "running";
    case Phase::kSucceeded:
      return "succeeded";
    case Phase::kStopping:
      return "stopping";
  }
  return "?";
}

boost::json::string_view Json(absl::string_view s) { return {s.data(), s.size()}; }

// What differs between the rules of the job and those of a node that wants in; empty if nothing does.
std::string Difference(const RoundPolicy& job, const RoundPolicy& node) {
  const auto nodes = [](const RoundPolicy& p) {
    return absl::StrCat("--nnodes=", p.min_nodes, ":", p.max_nodes);
  };
  const auto scale_up = [](const RoundPolicy& p) {
    switch (p.scale_up) {
      case ScaleUp::kImmediate:
        return "--scale-up=immediate";
      case ScaleUp::kAtSnapshot:
        return "--scale-up=at-snapshot";
      case ScaleUp::kNever:
        return "--scale-up=never";
    }
    return "?";
  };
  const auto number = [](absl::string_view option, int64_t n) { return absl::StrCat("--", option, "=", n); };
  const std::pair<std::string, std::string> options[] = {
      {nodes(job), nodes(node)},
      {number("node-unit", job.node_unit), number("node-unit", node.node_unit)},
      {number("max-restarts", job.max_restarts), number("max-restarts", node.max_restarts)},
      {number("max-restarts-without-progress", job.max_restarts_without_progress),
       number("max-restarts-without-progress", node.max_restarts_without_progress)},
      {number("min-uptime ms", ToMillis(job.min_uptime)), number("min-uptime ms", ToMillis(node.min_uptime))},
      {scale_up(job), scale_up(node)},
      // A node trusts in it when it stops its workers because nobody hears it.
      {number("rdzv-conf=lease_ms", ToMillis(job.lease)), number("rdzv-conf=lease_ms", ToMillis(node.lease))},
  };
  for (const auto& [theirs, its] : options) {
    if (theirs != its) return absl::StrCat(its, ", but the job has ", theirs);
  }
  return "";
}

}  // namespace

Coordinator::Coordinator(boost::asio::io_context& io, Log log, CoordinatorLimits limits)
    : log_(std::move(log)), limits_(limits), timer_(io) {}

Coordinator::PeerId Coordinator::Attach(AgentPeer* peer) {
  const PeerId id = next_peer_++;
  peers_[id].peer = peer;
  strangers_[id] = Now() + limits_.join;
  SetTimer();
  return id;
}

void Coordinator::Receive(PeerId id, const proto::AgentMessage& message) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return;
  Peer& peer = it->second;
  if (strangers_.erase(id) > 0) {
    const absl::Status joined =
        message.has_join() ? Join(id, peer, message.join())
                           : absl::InvalidArgumentError("the first message of an agent must be a join");
    if (!joined.ok()) DismissPeer(peer, Dismissal::kRejected, joined.message());
  } else if (peer.node.empty()) {
    // Dismissed; what it still says does not count.
  } else if (const absl::StatusOr<RoundEvent> event = DecodeEvent(message, peer.node); event.ok()) {
    Job& job = jobs_.at(peer.run_id);
    Step(peer.run_id, job, *event);
    if (message.has_leave()) {
      // The job may be forgotten before the connection ends.
      job.nodes.erase(peer.node);
      peer.node.clear();
    }
    if (message.has_heartbeat() && !peer.node.empty()) {
      proto::CoordinatorMessage answer;
      answer.mutable_heard();
      peer.peer->Send(answer);
    }
  } else {
    log_("bad_message", peer.run_id, absl::StrCat("of node ", peer.node, ": ", event.status().message()));
    Step(peer.run_id, jobs_.at(peer.run_id), NodeLost{peer.node, std::string(event.status().message())});
    DismissPeer(peer, Dismissal::kRejected, event.status().message());
  }
  MaybeForget(peer.run_id);
  SetTimer();
}

absl::Status Coordinator::Join(PeerId id, Peer& peer, const proto::Join& join) {
  if (!closing_.empty()) {
    DismissPeer(peer, Dismissal::kCoordinatorEnded, closing_);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const RoundPolicy rules, DecodeRules(join.rules()), "rules of the job");
  ASSIGN_OR_RETURN(NodeInfo info, DecodeJoin(join, peer.peer->address()), "join");
  const auto [it, is_new] = jobs_.try_emplace(join.run_id(), rules);
  Job& job = it->second;
  const bool closed = job.machine.state() == RoundMachine::State::kClosed;
  const std::string difference = closed ? "" : Difference(job.machine.policy(), rules);
  if (!difference.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(info.host, " has ", difference, ": start all nodes with the same options"));
  }
  if (job.nodes.contains(info.id))
    return absl::InvalidArgumentError(absl::StrCat("node_id ", info.id, " is in use"));
  info.leased = !peer.peer->in_process();
  peer.run_id = join.run_id();
  peer.node = info.id;
  job.nodes[info.id] = id;

  proto::CoordinatorMessage welcome;
  // Four chances within a lease.
  welcome.mutable_welcome()->set_heartbeat_ms(info.leased ? ToMillis(job.machine.policy().lease / 4) : 0);
  welcome.mutable_welcome()->set_seen_addr(peer.peer->address());
  peer.peer->Send(welcome);
  Step(join.run_id(), job, NodeJoined{std::move(info), DecodeExpectedHosts(join)});
  return absl::OkStatus();
}

void Coordinator::Step(const std::string& run_id, Job& job, const RoundEvent& event) {
  for (const RoundEffect& effect : job.machine.Step(event, Now())) {
    if (const auto* note = std::get_if<Note>(&effect)) {
      job.since = Now();
      job.last_note = note->reason;
      log_(note->event, run_id, note->reason);
      continue;
    }
    const std::optional<Addressed> out = EncodeEffect(effect);
    const auto it = job.nodes.find(out->node);
    if (it == job.nodes.end()) continue;  // gone meanwhile
    const PeerId peer_id = it->second;
    Peer& peer = peers_.at(peer_id);
    peer.peer->Send(out->message);
    if (!out->last) continue;
    job.nodes.erase(it);
    peer.node.clear();
    peer.peer->End(absl::OkStatus());
  }
}

void Coordinator::DismissPeer(Peer& peer, Dismissal reason, absl::string_view why) {
  log_("agent_refused", peer.run_id, why);
  proto::CoordinatorMessage message;
  *message.mutable_dismiss() = EncodeDismiss(reason, why);
  peer.peer->Send(message);
  if (!peer.node.empty()) jobs_.at(peer.run_id).nodes.erase(peer.node);
  peer.node.clear();
  peer.peer->End(absl::OkStatus());
}

void Coordinator::ExpireStrangers(TimePoint now) {
  while (!strangers_.empty() && strangers_.begin()->second <= now) {
    Peer& peer = peers_.at(strangers_.begin()->first);
    strangers_.erase(strangers_.begin());
    DismissPeer(peer, Dismissal::kExpelled,
                absl::StrCat(peer.peer->address(), " connected, but sent no join within ",
                             ToMillis(limits_.join), " ms"));
  }
}

void Coordinator::MaybeForget(const std::string& run_id) {
  const auto it = jobs_.find(run_id);
  if (it == jobs_.end()) return;
  const RoundMachine& machine = it->second.machine;
  if (machine.state() == RoundMachine::State::kGathering && machine.membership().size() == 0) {
    log_("job_forgotten", run_id, "it has no nodes");
    jobs_.erase(it);
  } else if (machine.state() == RoundMachine::State::kClosed && !it->second.retired) {
    it->second.retired = true;
    closed_jobs_.push_back(run_id);
    if (closed_jobs_.size() <= limits_.closed_jobs) return;
    jobs_.erase(closed_jobs_.front());
    closed_jobs_.pop_front();
  }
}

void Coordinator::Detach(PeerId id, absl::string_view reason) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return;
  const Peer peer = it->second;
  peers_.erase(it);
  strangers_.erase(id);
  if (!peer.node.empty()) {
    Job& job = jobs_.at(peer.run_id);
    job.nodes.erase(peer.node);
    Step(peer.run_id, job, NodeLost{peer.node, std::string(reason)});
    MaybeForget(peer.run_id);
    SetTimer();
  }
  if (on_detach_) on_detach_();
}

void Coordinator::CloseAll(const std::string& reason) {
  closing_ = reason;
  for (auto& [run_id, job] : jobs_) Step(run_id, job, CloseRequested{Dismissal::kCoordinatorEnded, reason});
  for (const auto& [id, join_end] : std::exchange(strangers_, {})) {
    DismissPeer(peers_.at(id), Dismissal::kCoordinatorEnded, reason);
  }
  SetTimer();
}

void Coordinator::SetTimer() {
  std::optional<TimePoint> next;
  if (!strangers_.empty()) next = strangers_.begin()->second;
  for (const auto& [run_id, job] : jobs_) {
    if (const auto due = job.machine.NextDeadline(); due && (!next || *due < *next)) next = due;
  }
  // A timer that is due too early costs one wake-up and is set anew then: cheaper than moving it with every
  // message.
  if (timer_at_ && next && *timer_at_ <= *next) return;
  timer_at_ = next;
  timer_.cancel();
  if (!next) return;
  timer_.expires_at(*next);
  timer_.async_wait([self = weak()](const boost::system::error_code& error) {
    if (const auto coordinator = self.lock(); coordinator && !error) coordinator->OnTimer();
  });
}

void Coordinator::OnTimer() {
  timer_at_.reset();
  const TimePoint now = Now();
  ExpireStrangers(now);
  std::vector<std::string> due_jobs;
  for (const auto& [run_id, job] : jobs_) {
    if (const auto due = job.machine.NextDeadline(); due && *due <= now) due_jobs.push_back(run_id);
  }
  for (const std::string& run_id : due_jobs) {
    Step(run_id, jobs_.at(run_id), Tick{});
    MaybeForget(run_id);
  }
  SetTimer();
}

boost::json::object Coordinator::Status() const {
  const TimePoint now = Now();
  boost::json::array jobs;
  for (const auto& [run_id, job] : jobs_) {
    const RoundMachine& m = job.machine;
    boost::json::array nodes;
    for (const auto& [id, member] : m.membership().members()) {
      boost::json::object node{{"id", id},
                               {"host", member.info.host},
                               {"addr", member.info.addr},
                               {"state", Json(Name(member.phase))},
                               {"nproc", member.info.nproc},
                               {"group_rank", nullptr}};
      if (member.rank && member.phase != Phase::kWaiting) node["group_rank"] = member.rank->value();
      if (member.info.leased) node["lease_left_ms"] = ToMillis(member.lease_end - now);
      nodes.push_back(std::move(node));
    }
    jobs.push_back(boost::json::object{{"run_id", run_id},
                                       {"state", Json(Name(m.state()))},
                                       {"round", m.round().value()},
                                       {"restarts", m.restarts()},
                                       {"max_restarts", m.policy().max_restarts},
                                       {"min_nodes", m.policy().min_nodes},
                                       {"max_nodes", m.policy().max_nodes},
                                       {"last_failure", m.last_failure()},
                                       {"last_transition", job.last_note},
                                       {"last_transition_ms_ago", ToMillis(now - job.since)},
                                       {"nodes", std::move(nodes)}});
  }
  return {{"service", "ddprun"}, {"protocol", kProtocolVersion}, {"jobs", std::move(jobs)}};
}

}  // namespace ddprun
