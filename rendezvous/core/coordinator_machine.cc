#include "rendezvous/core/coordinator_machine.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/job_rules.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "rendezvous/core/round_text.h"

namespace ddprun {
namespace {

// Number of reports that a process keeps for a job that it does not lead.
constexpr size_t kMaxEarlyGone = 16;

// Lists at most 20 of `names`.
std::string FirstOf(std::vector<absl::string_view> names) {
  constexpr size_t kMaxNames = 20;
  const size_t more = names.size() - std::min(names.size(), kMaxNames);
  names.resize(names.size() - more);
  return absl::StrCat(names.empty() ? "none" : absl::StrJoin(names, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

// Finds a node by its id or host.
absl::StatusOr<const Member*> FindNode(const Membership& membership, const std::string& name) {
  if (const Member* member = membership.Find(NodeId(name))) return member;
  std::vector<const Member*> found;
  std::set<absl::string_view> hosts;
  for (const auto& [id, member] : membership.members()) {
    if (member.info.host == name) found.push_back(&member);
    hosts.insert(member.info.host);
  }
  if (found.size() == 1) return found[0];
  if (found.size() > 1) {
    std::vector<absl::string_view> ids;
    for (const Member* member : found) ids.push_back(member->info.id.value());
    return absl::InvalidArgumentError(
        absl::StrCat(ids.size(), " nodes are on host ", name, "; give the id of one: ", FirstOf(ids)));
  }
  return absl::NotFoundError(
      absl::StrCat("there is no node ", name, "; known hosts: ", FirstOf({hosts.begin(), hosts.end()})));
}

NodeId NodeOf(const RoundEffect& order) {
  return std::visit(
      [](const auto& e) -> NodeId {
        if constexpr (requires { e.node; }) {
          return e.node;
        } else {
          return {};
        }
      },
      order);
}

}  // namespace

CoordinatorMachine::CoordinatorMachine(CoordinatorLimits limits) : limits_(limits) {}

CoordinatorEffects CoordinatorMachine::Step(const CoordinatorEvent& event, TimePoint now) {
  DDPRUN_CHECK(now >= now_, "now goes back by " << (now_ - now) / milliseconds(1) << " ms");
  now_ = now;
  effects_.clear();
  std::visit([this](const auto& e) { On(e); }, event);
  return std::exchange(effects_, {});
}

std::optional<TimePoint> CoordinatorMachine::NextDeadline() const {
  std::optional<TimePoint> next;
  if (!unjoined_.empty()) next = unjoined_.begin()->second;
  for (const auto& [run_id, job] : jobs_) {
    for (const auto& due : {job.machine.NextDeadline(), job.forget_at}) {
      if (due && (!next || *due < *next)) next = due;
    }
  }
  return next;
}

void CoordinatorMachine::On(const PeerConnected& e) {
  peers_[e.peer] = {.address = e.address, .in_process = e.in_process};
  unjoined_[e.peer] = now_ + limits_.join;
}

void CoordinatorMachine::On(const PeerJoined& e) {
  const auto it = peers_.find(e.peer);
  if (it == peers_.end()) return;
  if (unjoined_.erase(e.peer) == 0) {
    return On(PeerMisspoke{e.peer, absl::InvalidArgumentError("a second join on one stream")});
  }
  if (const absl::Status joined = Join(it->second, e); !joined.ok()) {
    DismissPeer(e.peer, Dismissal::kRejected, Unfit{std::string(joined.message())});
  }
  MaybeForget(e.run_id);
}

absl::Status CoordinatorMachine::Join(Peer& peer, const PeerJoined& e) {
  if (limits_.registered && led_ != e.run_id) {
    DismissPeer(e.peer, Dismissal::kEvicted, NotLed{e.run_id});
    return absl::OkStatus();
  }
  if (ending_ && !led_) {
    DismissPeer(e.peer, Dismissal::kCoordinatorEnded, *ending_);
    return absl::OkStatus();
  }
  if (const auto old = jobs_.find(e.run_id);
      old != jobs_.end() && old->second.forget_at &&
      FindDisagreement(old->second.machine.policy(), e.rules) != nullptr) {
    Forget(old, note::JobForgotten::Why::kOtherOptions);
  }
  Job& job = jobs_.try_emplace(e.run_id, RoundMachine(e.rules)).first->second;
  job.forget_at.reset();
  const bool closed = job.machine.state() == RoundMachine::State::kClosed;
  const JobRules& rules = job.machine.policy();
  if (const JobRuleField* rule = closed ? nullptr : FindDisagreement(rules, e.rules)) {
    return absl::InvalidArgumentError(
        absl::StrCat(e.info.host, " has ", DisagreementText(*rule, rules, e.rules),
                     ": start all nodes with the same options",
                     limits_.registered ? ", or give a new job another --rdzv-id" : ""));
  }
  if (job.nodes.contains(e.info.id)) {
    return absl::InvalidArgumentError(absl::StrCat("node_id ", e.info.id.value(), " is in use"));
  }
  NodeInfo info = e.info;
  info.hosts = peer.in_process;
  info.leased = !info.hosts || limits_.registered;
  if (info.addr.empty()) info.addr = peer.address;
  peer.run_id = e.run_id;
  peer.node = info.id;
  job.nodes[info.id] = e.peer;
  // Four heartbeats per lease.
  const Duration heartbeat = info.leased ? job.machine.policy().lease / 4 : Duration::zero();
  effects_.push_back(Welcome{e.peer, heartbeat, peer.address});
  StepJob(e.run_id, NodeJoined{std::move(info), e.expected_hosts});
  // The previous node is reported as gone after the join. If the job waits only for the previous node, the
  // report seals the next round, which then includes the new node. The error is ignored, because it normally
  // means that the previous node was removed when its lease expired.
  if (!e.previous_node.empty()) (void)ReportGone(e.run_id, e.previous_node, e.previous_token);
  for (const auto& [node, token] : e.gone) (void)ReportGone(e.run_id, node, token);
  return absl::OkStatus();
}

void CoordinatorMachine::On(const PeerSaid& e) {
  const auto it = peers_.find(e.peer);
  if (it == peers_.end()) return;
  Peer& peer = it->second;
  if (unjoined_.contains(e.peer)) {
    return On(
        PeerMisspoke{e.peer, absl::InvalidArgumentError("the first message of an agent must be a join")});
  }
  if (peer.node.empty()) return;  // The peer has left or was dismissed: its messages are ignored.
  const std::string run_id = peer.run_id;
  // Handled before StepJob, so that the coordinator starts no round that it cannot finish.
  if (peer.in_process) HeedHost(e.message);
  if (peer.node.empty()) return MaybeForget(run_id);
  const RoundEvent event = std::visit(
      [&peer](auto message) -> RoundEvent {
        message.node = peer.node;
        return message;
      },
      e.message);
  StepJob(run_id, event);
  if (std::holds_alternative<NodeLeft>(event)) {
    // The peer leaves the job now, because the job may be forgotten before the connection closes.
    jobs_.at(run_id).nodes.erase(peer.node);
    peer.node = {};
  }
  if (std::holds_alternative<NodeHeard>(event) && !peer.node.empty()) effects_.push_back(Heard{e.peer});
  MaybeForget(run_id);
}

void CoordinatorMachine::HeedHost(const NodeMessage& message) {
  if (limits_.registered) return;  // The job's machine knows its host.
  const auto end = [this](const std::string& why) { On(CoordinatorEnding{HostLeaving{why}}); };
  if (const auto* e = std::get_if<NodeLeaving>(&message)) end(e->reason);
  if (const auto* e = std::get_if<NodeLeft>(&message)) end(e->reason);
}

void CoordinatorMachine::On(const PeerMisspoke& e) {
  const auto it = peers_.find(e.peer);
  if (it == peers_.end()) return;
  const Peer peer = it->second;
  const std::string why(e.why.message());
  if (unjoined_.erase(e.peer) > 0) return DismissPeer(e.peer, Dismissal::kRejected, Unfit{why});
  if (peer.node.empty()) return;
  effects_.push_back(LogLine{peer.run_id, note::BadMessage{peer.node, why}});
  StepJob(peer.run_id, NodeLost{peer.node, why});
  DismissPeer(e.peer, Dismissal::kRejected, Unfit{why});
  MaybeForget(peer.run_id);
}

void CoordinatorMachine::On(const PeerDisconnected& e) {
  const auto it = peers_.find(e.peer);
  if (it == peers_.end()) return;
  const Peer peer = it->second;
  peers_.erase(it);
  unjoined_.erase(e.peer);
  if (peer.node.empty()) return;
  jobs_.at(peer.run_id).nodes.erase(peer.node);
  StepJob(peer.run_id, NodeLost{peer.node, e.reason});
  MaybeForget(peer.run_id);
}

void CoordinatorMachine::On(const GoneReported& e) {
  effects_.push_back(GoneNoted{ReportGone(e.run_id, e.node, e.token)});
  MaybeForget(e.run_id);
}

absl::Status CoordinatorMachine::ReportGone(const std::string& run_id, const NodeId& node,
                                            const std::string& token) {
  const auto job = jobs_.find(run_id);
  if (limits_.registered && led_ != run_id) {
    // The warden of the leader says so to a process that may be the next one.
    early_gone_.push_back({run_id, node, token});
    if (early_gone_.size() > kMaxEarlyGone) early_gone_.pop_front();
    return absl::OkStatus();
  }
  if (job != jobs_.end() && job->second.machine.WasCoordinator(node, token) &&
      job->second.machine.membership().Find(node) == nullptr) {
    StepJob(run_id, NodeGone{node});
    return absl::OkStatus();
  }
  const Member* member = job == jobs_.end() ? nullptr : job->second.machine.membership().Find(node);
  if (member == nullptr) return absl::NotFoundError(absl::StrCat("there is no node ", node.value()));
  if (member->info.gone_token.empty() || member->info.gone_token != token) {
    return absl::PermissionDeniedError(absl::StrCat("wrong token for node ", node.value()));
  }
  StepJob(run_id, NodeGone{node});
  // The connection of the node may still be open, and the job may be forgotten before the connection closes.
  if (const auto it = job->second.nodes.find(node); it != job->second.nodes.end()) {
    peers_.at(it->second).node = {};
    effects_.push_back(HangUp{it->second});
    job->second.nodes.erase(it);
  }
  return absl::OkStatus();
}

void CoordinatorMachine::On(const DrainNode& e) { effects_.push_back(Answer{Drain(e)}); }
void CoordinatorMachine::On(const PreemptNode& e) { effects_.push_back(Answer{Preempt(e)}); }
void CoordinatorMachine::On(const StopJob& e) { effects_.push_back(Answer{Stop(e)}); }

void CoordinatorMachine::On(const CoordinatorEnding& e) {
  if (ending_ && !e.at_once) return;
  if (!ending_) ending_ = e.reason;
  if (led_ && e.at_once) return On(LeadLapsed{});  // the nodes look for another coordinator
  if (led_) HandOver(ToText(*ending_));
  for (const auto& [run_id, job] : jobs_) {
    if (led_) break;
    StepJob(run_id, CloseRequested{Dismissal::kCoordinatorEnded, *ending_, e.at_once});
  }
  for (const auto& [id, join_end] : std::exchange(unjoined_, {})) {
    DismissPeer(id, limits_.registered ? Dismissal::kMoved : Dismissal::kCoordinatorEnded, e.reason);
  }
}

void CoordinatorMachine::On(const LeadBegun& e) {
  DDPRUN_CHECK(limits_.registered && !led_ && jobs_.empty(), "leads another job than " << e.run_id);
  led_ = e.run_id;
  if (!e.charter) return;
  RoundEffects notes;
  RoundMachine machine(*e.charter, e.how, now_, notes);
  Job& job = jobs_.emplace(e.run_id, std::move(machine)).first->second;
  Pass(e.run_id, job, std::move(notes));
  for (const GoneReported& gone : std::exchange(early_gone_, {})) {
    (void)ReportGone(gone.run_id, gone.node, gone.token);
  }
  MaybeForget(e.run_id);
}

void CoordinatorMachine::On(const LeadLapsed&) {
  led_.reset();
  for (const auto& [run_id, job] : jobs_) effects_.push_back(JobForgotten{run_id});
  jobs_.clear();
  closed_jobs_.clear();
  unjoined_.clear();
  for (auto& [id, peer] : peers_) {
    peer.node = {};
    effects_.push_back(HangUp{id});
  }
}

void CoordinatorMachine::HandOver(const std::string& why) {
  if (jobs_.contains(*led_)) return StepJob(*led_, HandOverRequested{why});
  effects_.push_back(JobHandedOver{*led_});  // No node has joined.
}

void CoordinatorMachine::On(const CoordinatorTick&) {
  ExpireUnjoined();
  std::set<std::string> due;
  for (const auto& [run_id, job] : jobs_) {
    for (const auto& deadline : {job.machine.NextDeadline(), job.forget_at}) {
      if (deadline && *deadline <= now_) due.insert(run_id);
    }
  }
  for (const std::string& run_id : due) {
    StepJob(run_id, Tick{});
    MaybeForget(run_id);
  }
}

void CoordinatorMachine::StepJob(const std::string& run_id, const RoundEvent& event) {
  Job& job = jobs_.at(run_id);
  RoundEffects effects = job.machine.Step(event, now_);
  if (observer_) observer_(event, effects, job.machine);
  Pass(run_id, job, std::move(effects));
}

void CoordinatorMachine::Pass(const std::string& run_id, Job& job, RoundEffects effects) {
  for (RoundEffect& effect : effects) {
    if (auto* note = std::get_if<Note>(&effect)) {
      effects_.push_back(JobEvent{run_id, std::move(*note)});
      continue;
    }
    if (const auto* handed_over = std::get_if<ddprun::HandOver>(&effect)) {
      effects_.push_back(JobHandedOver{run_id, handed_over->forget});
      continue;
    }
    const NodeId node = NodeOf(effect);
    const bool last = std::holds_alternative<Dismiss>(effect);
    Send(job, node, std::move(effect), last);
  }
}

void CoordinatorMachine::Send(Job& job, const NodeId& node, RoundEffect order, bool last) {
  const auto it = job.nodes.find(node);
  if (it == job.nodes.end()) return;  // the node is already disconnected
  const PeerId peer = it->second;
  effects_.push_back(Order{peer, std::move(order)});
  if (!last) return;
  job.nodes.erase(it);
  peers_.at(peer).node = {};
  effects_.push_back(HangUp{peer});
}

void CoordinatorMachine::DismissPeer(PeerId id, Dismissal reason, DismissReason why) {
  Peer& peer = peers_.at(id);
  effects_.push_back(LogLine{peer.run_id, note::AgentRefused{why}});
  effects_.push_back(Order{id, Dismiss{peer.node, reason, std::move(why)}});
  if (!peer.node.empty()) jobs_.at(peer.run_id).nodes.erase(peer.node);
  peer.node = {};
  effects_.push_back(HangUp{id});
}

void CoordinatorMachine::ExpireUnjoined() {
  while (!unjoined_.empty() && unjoined_.begin()->second <= now_) {
    const PeerId id = unjoined_.begin()->first;
    unjoined_.erase(unjoined_.begin());
    DismissPeer(id, Dismissal::kEvicted, NoJoinCame{peers_.at(id).address, limits_.join});
  }
}

void CoordinatorMachine::MaybeForget(const std::string& run_id) {
  const auto it = jobs_.find(run_id);
  if (it == jobs_.end()) return;
  const RoundMachine& machine = it->second.machine;
  if (machine.state() == RoundMachine::State::kGathering && machine.membership().size() == 0) {
    if (limits_.registered) return;
    std::optional<TimePoint>& forget_at = it->second.forget_at;
    if (machine.deserted() && !forget_at) {
      forget_at = std::max(now_, machine.back_at().value_or(now_)) + machine.policy().join_timeout;
      effects_.push_back(JobEvent{run_id, note::JobDeserted{}});
    }
    if (forget_at && now_ < *forget_at) return;
    using Why = note::JobForgotten::Why;
    Forget(it, forget_at ? Why::kNoneCameBack : Why::kNoNodes);
  } else if (machine.state() == RoundMachine::State::kClosed && !it->second.retired) {
    it->second.retired = true;
    it->second.forget_at.reset();
    effects_.push_back(JobRetired{run_id});
    closed_jobs_.push_back(run_id);
    if (closed_jobs_.size() <= limits_.closed_jobs) return;
    effects_.push_back(JobForgotten{closed_jobs_.front()});
    jobs_.erase(closed_jobs_.front());
    closed_jobs_.pop_front();
  }
}

void CoordinatorMachine::Forget(std::map<std::string, Job>::iterator job, note::JobForgotten::Why why) {
  effects_.push_back(LogLine{job->first, note::JobForgotten{why}});
  effects_.push_back(JobForgotten{job->first});
  jobs_.erase(job);
}

// --- Operators

absl::StatusOr<std::string> CoordinatorMachine::FindJob(const std::string& run_id) const {
  if (jobs_.contains(run_id)) return run_id;
  std::vector<absl::string_view> open;
  std::vector<absl::string_view> names;
  for (const auto& [id, job] : jobs_) {
    if (job.machine.open()) open.push_back(id);
    names.push_back(id);
  }
  if (run_id.empty() && open.size() == 1) return std::string(open[0]);
  if (run_id.empty() && open.empty() && names.size() == 1) return std::string(names[0]);
  if (names.empty()) return absl::NotFoundError("the coordinator has no jobs");
  const std::string all = absl::StrJoin(names, ", ");
  if (run_id.empty()) return absl::InvalidArgumentError(absl::StrCat("name the job; known jobs: ", all));
  return absl::NotFoundError(absl::StrCat("there is no job ", run_id, "; known jobs: ", all));
}

absl::StatusOr<std::string> CoordinatorMachine::FindOpenJob(const std::string& run_id) const {
  ASSIGN_OR_RETURN(std::string id, FindJob(run_id));
  const RoundMachine& machine = jobs_.at(id).machine;
  if (machine.open()) return id;
  if (machine.state() == RoundMachine::State::kHandedOver) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", id, " moves to another coordinator: try again in a moment"));
  }
  return absl::FailedPreconditionError(absl::StrCat("job ", id, " is over: ", ToString(machine.outcome())));
}

absl::StatusOr<std::string> CoordinatorMachine::Drain(const DrainNode& e) {
  ASSIGN_OR_RETURN(const std::string run_id, FindOpenJob(e.run_id));
  const Job& job = jobs_.at(run_id);
  ASSIGN_OR_RETURN(const Member* member, FindNode(job.machine.membership(), e.node));
  if (!member->info.leased) {
    return absl::FailedPreconditionError(absl::StrCat(
        "node ", member->info.host, " hosts the coordinator and cannot be taken out; stop the job instead"));
  }
  const std::string name = ToText(NameOf(*member));
  const NodeId node = member->info.id;
  StepJob(run_id, DrainRequested{node, e.reason});
  const bool stays = job.nodes.contains(node);
  MaybeForget(run_id);
  return absl::StrCat(name,
                      stays ? " will be taken out once its workers have stopped" : " has been taken out");
}

absl::StatusOr<std::string> CoordinatorMachine::Preempt(const PreemptNode& e) {
  ASSIGN_OR_RETURN(const std::string run_id, FindOpenJob(e.run_id));
  const Job& job = jobs_.at(run_id);
  ASSIGN_OR_RETURN(const Member* member, FindNode(job.machine.membership(), e.node));
  const std::string name = ToText(NameOf(*member));
  const NodeId node = member->info.id;
  StepJob(run_id, NoticeGiven{node, e.left, e.back_in, e.reason});
  const bool stays = job.nodes.contains(node);
  MaybeForget(run_id);
  return absl::StrCat(name, stays ? " has notice: its workers stop after a snapshot, within " : " was let go",
                      stays ? InSeconds(e.left) : "");
}

absl::StatusOr<std::string> CoordinatorMachine::Stop(const StopJob& e) {
  ASSIGN_OR_RETURN(const std::string run_id, FindOpenJob(e.run_id));
  const int nodes = jobs_.at(run_id).machine.membership().size();
  StepJob(run_id, CloseRequested{Dismissal::kStopped, StopWanted{e.reason}});
  MaybeForget(run_id);
  return absl::StrCat("job ", run_id, " is being stopped on ", nodes, nodes == 1 ? " node" : " nodes");
}

}  // namespace ddprun
