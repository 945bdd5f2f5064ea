#include "rendezvous/server/coordinator.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "boost/json/array.hpp"
#include "proto/protocol_version.h"
#include "rendezvous/server/job_status.h"
#include "rendezvous/server/round_codec.h"
#include "rendezvous/server/rules_difference.h"

namespace ddprun {
namespace {

// The first names of a list that may be long.
std::string FirstOf(std::vector<absl::string_view> names) {
  constexpr size_t kMaxNames = 20;
  const size_t more = names.size() - std::min(names.size(), kMaxNames);
  names.resize(names.size() - more);
  return absl::StrCat(names.empty() ? "none" : absl::StrJoin(names, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

SharedMessage Shared(proto::CoordinatorMessage message) {
  return std::make_shared<const proto::CoordinatorMessage>(std::move(message));
}

// The node that `name`, an id or a host, means.
absl::StatusOr<const Member*> FindNode(const Membership& membership, const std::string& name) {
  if (const Member* member = membership.Find(name)) return member;
  std::vector<const Member*> found;
  std::set<absl::string_view> hosts;
  for (const auto& [id, member] : membership.members()) {
    if (member.info.host == name) found.push_back(&member);
    hosts.insert(member.info.host);
  }
  if (found.size() == 1) return found[0];
  if (found.size() > 1) {
    std::vector<absl::string_view> ids;
    for (const Member* member : found) ids.push_back(member->info.id);
    return absl::InvalidArgumentError(
        absl::StrCat(ids.size(), " nodes are on host ", name, "; say which by its id: ", FirstOf(ids)));
  }
  return absl::NotFoundError(
      absl::StrCat("there is no node ", name, "; there are ", FirstOf({hosts.begin(), hosts.end()})));
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
      static const SharedMessage heard = [] {
        proto::CoordinatorMessage message;
        message.mutable_heard();
        return Shared(std::move(message));
      }();
      peer.peer->Send(heard);
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
  const std::string difference = closed ? "" : RulesDifference(job.machine.policy(), rules);
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
  peer.peer->Send(Shared(std::move(welcome)));
  Step(join.run_id(), job, NodeJoined{std::move(info), DecodeExpectedHosts(join)});
  return absl::OkStatus();
}

void Coordinator::Step(const std::string& run_id, Job& job, const RoundEvent& event) {
  const TimePoint now = Now();
  // All nodes are told the same report, so it is encoded once.
  std::shared_ptr<const JobReport> report;
  SharedMessage report_message;
  for (const RoundEffect& effect : job.machine.Step(event, now)) {
    if (const auto* note = std::get_if<Note>(&effect)) {
      job.events.Add(note->event, note->reason, now, std::chrono::system_clock::now());
      log_(note->event, run_id, note->reason);
    } else if (const auto* tell = std::get_if<TellReport>(&effect)) {
      if (tell->report != report) {
        report = tell->report;
        report_message = Shared(std::move(EncodeEffect(effect)->message));
      }
      Deliver(job, tell->node, report_message, /*last=*/false);
    } else if (std::optional<Addressed> out = EncodeEffect(effect)) {
      Deliver(job, out->node, Shared(std::move(out->message)), out->last);
    }
  }
}

void Coordinator::Deliver(Job& job, const NodeId& node, SharedMessage message, bool last) {
  const auto it = job.nodes.find(node);
  if (it == job.nodes.end()) return;  // gone meanwhile
  Peer& peer = peers_.at(it->second);
  peer.peer->Send(std::move(message));
  if (!last) return;
  job.nodes.erase(it);
  peer.node.clear();
  peer.peer->End(absl::OkStatus());
}

void Coordinator::DismissPeer(Peer& peer, Dismissal reason, absl::string_view why) {
  log_("agent_refused", peer.run_id, why);
  proto::CoordinatorMessage message;
  *message.mutable_dismiss() = EncodeDismiss(reason, why);
  peer.peer->Send(Shared(std::move(message)));
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
    it->second.events.Keep(limits_.events_of_closed);
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
  for (const auto& [run_id, job] : jobs_) jobs.push_back(JobStatus(run_id, job.machine, job.events, now));
  return {{"service", "ddprun"}, {"protocol", kProtocolVersion}, {"jobs", std::move(jobs)}};
}

absl::StatusOr<Coordinator::JobEntry*> Coordinator::FindJob(const std::string& run_id) {
  if (const auto it = jobs_.find(run_id); it != jobs_.end()) return &*it;
  std::vector<JobEntry*> open;
  std::vector<absl::string_view> names;
  for (JobEntry& entry : jobs_) {
    if (entry.second.machine.state() != RoundMachine::State::kClosed) open.push_back(&entry);
    names.push_back(entry.first);
  }
  if (run_id.empty() && open.size() == 1) return open[0];
  if (run_id.empty() && open.empty() && names.size() == 1) return &*jobs_.begin();
  if (names.empty()) return absl::NotFoundError("the coordinator has no job");
  const std::string all = absl::StrJoin(names, ", ");
  if (run_id.empty()) return absl::InvalidArgumentError(absl::StrCat("say which job; there are ", all));
  return absl::NotFoundError(absl::StrCat("there is no job ", run_id, "; there are ", all));
}

absl::StatusOr<std::string> Coordinator::Events(const std::string& run_id, uint64_t after) {
  ASSIGN_OR_RETURN(const JobEntry* entry, FindJob(run_id));
  return entry->second.events.After(after);
}

absl::StatusOr<Coordinator::JobEntry*> Coordinator::FindOpenJob(const std::string& run_id) {
  ASSIGN_OR_RETURN(JobEntry * entry, FindJob(run_id));
  const RoundMachine& machine = entry->second.machine;
  if (machine.state() != RoundMachine::State::kClosed) return entry;
  return absl::FailedPreconditionError(
      absl::StrCat("job ", entry->first, " is over: ", ToString(machine.outcome())));
}

absl::StatusOr<std::string> Coordinator::Drain(const std::string& run_id, const std::string& node,
                                               const std::string& reason) {
  ASSIGN_OR_RETURN(JobEntry * entry, FindOpenJob(run_id));
  auto& [id, job] = *entry;
  ASSIGN_OR_RETURN(const Member* member, FindNode(job.machine.membership(), node));
  if (!member->info.leased) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", member->info.host,
                     " hosts the coordinator and cannot be taken out; stop the job "
                     "instead"));
  }
  const std::string name = absl::StrCat("node ", member->info.host, " (", member->info.id, ")");
  const std::string run = id;  // the job may be forgotten by what follows
  const NodeId node_id = member->info.id;
  Step(run, job, DrainRequested{node_id, reason});
  std::string text = absl::StrCat(
      name, job.nodes.contains(node_id) ? " is taken out when its workers have stopped" : " is taken out");
  MaybeForget(run);
  SetTimer();
  return text;
}

absl::StatusOr<std::string> Coordinator::Stop(const std::string& run_id, const std::string& reason) {
  ASSIGN_OR_RETURN(JobEntry * entry, FindOpenJob(run_id));
  const std::string run = entry->first;
  const int nodes = entry->second.machine.membership().size();
  Step(run, entry->second, CloseRequested{Dismissal::kStopped, reason});
  MaybeForget(run);
  SetTimer();
  return absl::StrCat("job ", run, " is stopped on ", nodes, nodes == 1 ? " node" : " nodes");
}

}  // namespace ddprun
