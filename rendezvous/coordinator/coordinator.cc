#include "rendezvous/coordinator/coordinator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "boost/json/array.hpp"
#include "proto/versions.h"
#include "rendezvous/coordinator/charter_codec.h"
#include "rendezvous/coordinator/job_status.h"
#include "rendezvous/coordinator/round_codec.h"
#include "rendezvous/core/round_text.h"

namespace ddprun {
namespace {

proto::RecordedStep::LeadBegun Encode(const LeadBegun& begun) {
  using Step = proto::RecordedStep::LeadBegun;
  Step step;
  step.set_run_id(begun.run_id);
  step.set_how(begun.how == Takeover::kFenced     ? Step::FENCED
               : begun.how == Takeover::kUnfenced ? Step::UNFENCED
                                                  : Step::HANDED_OVER);
  if (begun.charter) step.set_charter(EncodeCharter(begun.run_id, *begun.charter));
  return step;
}

SharedMessage Shared(proto::CoordinatorMessage message) {
  return std::make_shared<const proto::CoordinatorMessage>(std::move(message));
}

}  // namespace

Coordinator::Coordinator(std::unique_ptr<WakeTimer> timer, Log log, CoordinatorLimits limits)
    : timer_(std::move(timer)), log_(std::move(log)), limits_(limits), machine_(limits) {}

void Coordinator::BeginToLead(LeadBegun begun, CharterKeeper* keeper) {
  DDPRUN_CHECK(keeper_ == nullptr && held_.empty(), "already leads job " << led_);
  keeper_ = keeper;
  led_ = begun.run_id;
  charter_version_ = charters_ = written_ = 0;
  listeners_.clear();
  ended_.clear();
  handing_over_ = false;
  if (recorder_) *recorder_->event().mutable_lead_begun() = Encode(begun);
  Step(begun);
}

void Coordinator::CharterWritten(int64_t number) {
  if (recorder_) recorder_->event().mutable_charter_written()->set_number(number);
  written_ = std::max(written_, number);
  Release();
}

void Coordinator::HandedOver() {
  if (recorder_) recorder_->event().mutable_handed_over();
  keeper_ = nullptr;
  handing_over_ = false;
  Release();
}

void Coordinator::LeadLost() {
  if (recorder_) recorder_->event().mutable_lead_lost();
  keeper_ = nullptr;
  handing_over_ = false;
  held_.clear();
  charters_ = written_ = 0;
  for (const Reply& reply : std::exchange(replies_, {})) {
    const absl::Status lost = absl::UnavailableError("this process no longer leads the job: ask again");
    if (recorder_) recorder_->Outcome("answer", 0, lost.ToString());
    reply(lost);
  }
  stacks_.EndAll(absl::UnavailableError("this process no longer leads the job: ask again"));
  Step(LeadLapsed{});
}

PeerId Coordinator::Attach(AgentPeer* peer) {
  const PeerId id = next_peer_++;
  peers_[id] = peer;
  if (recorder_) {
    proto::RecordedStep::Connected& connected = *recorder_->event().mutable_connected();
    connected.set_peer(id);
    connected.set_address(peer->address());
    connected.set_in_process(peer->in_process());
  }
  Step(PeerConnected{id, peer->address(), peer->in_process()});
  return id;
}

void Coordinator::Receive(PeerId id, const proto::AgentMessage& message) {
  if (message.has_stacks())
    return stacks_.Came(id, message.stacks());  // concerns no round, and is not recorded
  if (recorder_) {
    recorder_->event().mutable_received()->set_peer(id);
    *recorder_->event().mutable_received()->mutable_message() = message;
  }
  // Decoding must use the time of the step: a recording contains no other time, and a replay must decode the
  // same event.
  const TimePoint now = timer_->Now();
  if (keeper_ != nullptr) NoteListener(id, message);
  Step(DecodeAgentMessage(id, message, now), now);
}

void Coordinator::NoteListener(PeerId id, const proto::AgentMessage& message) {
  const auto peer = peers_.find(id);
  const auto job = machine_.jobs().find(led_);
  if (peer != peers_.end() && message.has_join() && message.join().coordinator_port() > 0) {
    const Listener listener(peer->second->address(), message.join().coordinator_port());
    listeners_[NodeId(message.join().node_id())] = listener;
    ended_.erase(listener);
  }
  if (job == machine_.jobs().end()) return;
  const auto& nodes = job->second.nodes;
  if (message.has_leave()) {
    const auto node =
        std::find_if(nodes.begin(), nodes.end(), [id](const auto& n) { return n.second == id; });
    const auto at = node == nodes.end() ? listeners_.end() : listeners_.find(node->first);
    if (at != listeners_.end()) ended_.insert(at->second);
  }
  constexpr size_t kFew = 64;
  if (listeners_.size() <= 2 * nodes.size() + kFew) return;
  std::erase_if(listeners_, [&](const auto& listener) {
    return job->second.machine.membership().Find(listener.first) == nullptr;
  });
}

std::vector<std::string> Coordinator::AgentAddresses() const {
  std::vector<std::string> addresses;
  for (const auto& [id, peer] : peers_) {
    if (!peer->in_process()) addresses.push_back(peer->address());
  }
  return addresses;
}

void Coordinator::Detach(PeerId id, absl::string_view reason) {
  if (peers_.erase(id) == 0) return;
  stacks_.Lost(id);
  if (recorder_) {
    recorder_->event().mutable_disconnected()->set_peer(id);
    recorder_->event().mutable_disconnected()->set_reason(std::string(reason));
  }
  Step(PeerDisconnected{id, std::string(reason)});
}

void Coordinator::CloseAll(const std::string& reason, bool at_once) {
  if (recorder_) {
    recorder_->event().mutable_ending()->set_reason(reason);
    recorder_->event().mutable_ending()->set_at_once(at_once);
  }
  Step(CoordinatorEnding{StopWanted{reason}, at_once});
}

std::optional<std::pair<std::string, int>> Coordinator::Standby() const {
  const auto job = machine_.jobs().find(led_);
  if (keeper_ == nullptr || job == machine_.jobs().end()) return std::nullopt;
  for (const auto& [node, id] : job->second.nodes) {
    const Member* const member = job->second.machine.membership().Find(node);
    const auto peer = peers_.find(id);
    if (member == nullptr || peer == peers_.end() || member->info.hosts || member->info.coordinator_port == 0)
      continue;
    return std::pair(peer->second->address(), member->info.coordinator_port);
  }
  return std::nullopt;
}

std::vector<LedNode> Coordinator::LedNodes() const {
  std::vector<LedNode> nodes;
  const auto job = machine_.jobs().find(led_);
  if (keeper_ == nullptr || job == machine_.jobs().end()) return nodes;
  for (const auto& [node, id] : job->second.nodes) {
    const Member* const member = job->second.machine.membership().Find(node);
    const auto peer = peers_.find(id);
    if (member == nullptr || peer == peers_.end()) continue;
    const bool in_round = InRound(*member) && member->rank;
    nodes.push_back({.host = member->info.host,
                     .address = peer->second->address(),
                     .port = member->info.coordinator_port,
                     .rank = in_round ? *member->rank : GroupRank(),
                     .in_process = peer->second->in_process(),
                     .in_round = in_round});
  }
  return nodes;
}

std::vector<std::pair<std::string, std::string>> Coordinator::GoneNodes() const {
  std::vector<std::pair<std::string, std::string>> nodes;
  for (const GoneReported& gone : machine_.early_gone()) nodes.emplace_back(gone.node.value(), gone.token);
  return nodes;
}

bool Coordinator::hands_over() const {
  if (keeper_ == nullptr) return false;
  const auto job = machine_.jobs().find(led_);
  return handing_over_ ||
         (job != machine_.jobs().end() && job->second.machine.state() == RoundMachine::State::kHandedOver);
}

int Coordinator::num_open_jobs() const {
  return static_cast<int>(std::count_if(machine_.jobs().begin(), machine_.jobs().end(),
                                        [](const auto& job) { return job.second.machine.open(); }));
}

absl::Status Coordinator::ReportGone(const std::string& run_id, const NodeId& node,
                                     const std::string& token) {
  if (recorder_) {
    proto::RecordedStep::Gone& gone = *recorder_->event().mutable_gone();
    gone.set_run_id(run_id);
    gone.set_node(node.value());
    gone.set_token(token);
  }
  const auto at = listeners_.find(node);
  Step(GoneReported{run_id, node, token});
  if (gone_noted_.ok() && at != listeners_.end()) ended_.insert(at->second);
  return gone_noted_;
}

void Coordinator::Drain(const std::string& run_id, const std::string& node, const std::string& reason,
                        Reply reply) {
  if (recorder_) {
    proto::RecordedStep::Drain& drain = *recorder_->event().mutable_drain();
    drain.set_run_id(run_id);
    drain.set_node(node);
    drain.set_reason(reason);
  }
  replies_.push_back(std::move(reply));
  Step(DrainNode{run_id, node, reason});
}

void Coordinator::Preempt(const PreemptNode& request, Reply reply) {
  if (recorder_) {
    proto::RecordedStep::Preempt& preempt = *recorder_->event().mutable_preempt();
    preempt.set_run_id(request.run_id);
    preempt.set_node(request.node);
    preempt.set_reason(request.reason);
    preempt.set_left_ms(ToMillis(request.left));
    if (request.back_in) preempt.set_back_in_ms(ToMillis(*request.back_in));
  }
  replies_.push_back(std::move(reply));
  Step(request);
}

void Coordinator::Stop(const std::string& run_id, const std::string& reason, Reply reply) {
  if (recorder_) {
    recorder_->event().mutable_stop()->set_run_id(run_id);
    recorder_->event().mutable_stop()->set_reason(reason);
  }
  replies_.push_back(std::move(reply));
  Step(StopJob{run_id, reason});
}

absl::StatusOr<std::map<PeerId, StackNode>> Coordinator::StackNodes(const std::string& run_id,
                                                                    std::optional<Rank> rank,
                                                                    std::optional<int>* local_rank) const {
  ASSIGN_OR_RETURN(const std::string id, machine_.FindJob(run_id));
  std::map<PeerId, StackNode> nodes;
  const auto job = machine_.jobs().find(id);
  if (job == machine_.jobs().end()) return absl::NotFoundError(absl::StrCat("no job ", id));
  int64_t ranks = 0;
  for (const auto& [node, peer] : job->second.nodes) {
    const Member* const member = job->second.machine.membership().Find(node);
    if (member == nullptr || !InRound(*member) || !member->rank) continue;
    const int64_t first = member->first_rank.value();
    ranks = std::max(ranks, first + member->info.nproc);
    if (rank && (rank->value() < first || rank->value() >= first + member->info.nproc)) continue;
    if (rank) *local_rank = static_cast<int>(rank->value() - first);
    nodes[peer] = {.host = member->info.host, .first_rank = member->first_rank, .nproc = member->info.nproc};
  }
  if (ranks == 0) return absl::FailedPreconditionError(absl::StrCat("no workers of job ", id, " run"));
  if (nodes.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no rank ", rank->value(), " runs: the ranks of the round are 0 to ", ranks - 1));
  }
  return nodes;
}

void Coordinator::Stacks(const std::string& run_id, std::optional<Rank> rank, bool native, Reply reply) {
  std::optional<int> local_rank;
  const auto nodes = StackNodes(run_id, rank, &local_rank);
  if (!nodes.ok()) return reply(nodes.status());
  if (stacks_.full()) {
    return reply(absl::ResourceExhaustedError(absl::StrCat(
        StackRequests::kMaxOpen, " requests for stacks are being answered: ask again in some seconds")));
  }
  proto::CoordinatorMessage message;
  proto::CollectStacks& order = *message.mutable_collect_stacks();
  order.set_request(stacks_.Begin(*nodes, native ? StackRequests::kNativeLimit : StackRequests::kLimit,
                                  std::move(reply), timer_->Now()));
  order.set_native(native);
  order.set_max_bytes(StackRequests::MaxBytes(nodes->size()));
  if (local_rank) order.add_local_ranks(*local_rank);
  const SharedMessage shared = Shared(std::move(message));
  for (const auto& [id, node] : *nodes) {
    if (const auto peer = peers_.find(id); peer != peers_.end()) peer->second->Send(shared);
  }
  SetTimer();
}

void Coordinator::Step(const CoordinatorEvent& event) { Step(event, timer_->Now()); }

void Coordinator::Step(const CoordinatorEvent& event, TimePoint now) {
  now_ = now;
  CoordinatorEffects effects = machine_.Step(event, now_);
  WriteCharter();
  for (CoordinatorEffect& effect : effects) Pass(std::move(effect));
  EndStep();
  SetTimer();
  if (on_step_) on_step_();
}

void Coordinator::EndStep() {
  report_.reset();
  report_message_.reset();
  lead_left_ms_.reset();
  start_additions_.reset();
  if (recorder_) recorder_->End(now_);
}

void Coordinator::WriteCharter() {
  if (keeper_ == nullptr) return;
  const auto job = machine_.jobs().find(led_);
  if (job == machine_.jobs().end() || job->second.machine.charter_version() == charter_version_) return;
  charter_version_ = job->second.machine.charter_version();
  const Charter charter = job->second.machine.charter();
  ++charters_;
  if (recorder_) recorder_->Outcome("write", charters_, CharterBytes(charter));
  keeper_->Write(charters_, charter);
}

void Coordinator::Pass(CoordinatorEffect effect) {
  const bool at_once = std::holds_alternative<Welcome>(effect) || std::holds_alternative<Heard>(effect) ||
                       std::holds_alternative<GoneNoted>(effect);
  if (at_once || (held_.empty() && charters_ <= written_ && !handing_over_))
    return std::visit([this](const auto& e) { Do(e); }, effect);
  held_.push_back({charters_, std::move(effect)});
}

void Coordinator::Release() {
  now_ = timer_->Now();
  while (!held_.empty() && held_.front().charter <= written_ && !handing_over_) {
    const CoordinatorEffect effect = std::move(held_.front().effect);
    held_.pop_front();
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
  EndStep();
  if (on_step_) on_step_();
}

int64_t Coordinator::LeadLeftMs() {
  if (!lead_left_ms_) {
    lead_left_ms_ = ToMillis(keeper_->LeadLeft());
    if (recorder_) recorder_->event().set_lead_left_ms(*lead_left_ms_);
  }
  return *lead_left_ms_;
}

const proto::Start& Coordinator::StartAdditions() {
  if (!start_additions_) {
    keeper_->Complete(start_additions_.emplace());
    if (recorder_) *recorder_->event().mutable_start_additions() = *start_additions_;
  }
  return *start_additions_;
}

void Coordinator::SetTimer() {
  std::optional<TimePoint> next = machine_.NextDeadline();
  if (const auto stacks = stacks_.NextDeadline()) next = std::min(*stacks, next.value_or(*stacks));
  if (next == timer_at_) return;
  timer_at_ = next;
  timer_->Set(next, [self = weak()] {
    const auto coordinator = self.lock();
    if (coordinator == nullptr) return;
    coordinator->timer_at_.reset();
    coordinator->stacks_.Tick(coordinator->timer_->Now());
    if (coordinator->recorder_) coordinator->recorder_->event().mutable_tick();
    coordinator->Step(CoordinatorTick{});
  });
}

void Coordinator::Do(const Welcome& e) {
  proto::CoordinatorMessage message;
  message.mutable_welcome()->set_heartbeat_ms(ToMillis(e.heartbeat));
  message.mutable_welcome()->set_seen_addr(e.seen_addr);
  if (keeper_ != nullptr) message.mutable_welcome()->set_lead_left_ms(LeadLeftMs());
  Send(e.peer, Shared(std::move(message)));
}

void Coordinator::Do(const Heard& e) {
  if (keeper_ != nullptr) {
    proto::CoordinatorMessage message;
    message.mutable_heard()->set_lead_left_ms(LeadLeftMs());
    return Send(e.peer, Shared(std::move(message)));
  }
  static const SharedMessage heard = [] {
    proto::CoordinatorMessage message;
    message.mutable_heard();
    return Shared(std::move(message));
  }();
  Send(e.peer, heard);
}

void Coordinator::Do(const Order& e) {
  const auto* tell = std::get_if<TellReport>(&e.order);
  if (tell == nullptr) {
    proto::CoordinatorMessage message = EncodeOrder(e.order, now_);
    if (keeper_ != nullptr && message.has_start()) message.mutable_start()->MergeFrom(StartAdditions());
    return Send(e.peer, Shared(std::move(message)));
  }
  // All nodes receive the same report, so the report is encoded only once.
  if (tell->report != report_) {
    report_ = tell->report;
    report_message_ = Shared(EncodeOrder(e.order, now_));
    report_digest_.clear();
  }
  Send(e.peer, report_message_);
}

void Coordinator::Do(const HangUp& e) {
  if (recorder_) recorder_->Outcome("hang up", e.peer, "");
  if (const auto it = peers_.find(e.peer); it != peers_.end()) it->second->End();
}

void Coordinator::Do(const JobEvent& e) {
  const NoteText text = ToText(e.note);
  events_[e.run_id].Add(std::string(text.event), text.reason, now_, std::chrono::system_clock::now());
  WriteLog(e.run_id, text);
}

void Coordinator::Do(const LogLine& e) { WriteLog(e.run_id, ToText(e.note)); }

void Coordinator::WriteLog(const std::string& run_id, const NoteText& text) {
  if (recorder_) recorder_->Outcome(text.event, 0, absl::StrCat(run_id, " ", text.reason));
  log_(text.event, run_id, text.reason);
}

bool Coordinator::IsForUsers(absl::string_view event) {
  return event == kRoundStandsStill || event == kRoundMovesAgain || event == kStraggler;
}

void Coordinator::Do(const JobHandedOver& e) {
  if (keeper_ == nullptr) return;
  handing_over_ = true;
  if (recorder_) recorder_->Outcome("hand over", 0, e.forget ? "forget" : "");
  keeper_->HandOver(e.forget);
}

void Coordinator::Do(const JobRetired& e) { events_[e.run_id].Keep(limits_.events_of_closed); }
void Coordinator::Do(const JobForgotten& e) { events_.erase(e.run_id); }
void Coordinator::Do(const GoneNoted& e) {
  gone_noted_ = e.status;
  if (recorder_) recorder_->Outcome("answer", 0, e.status.ok() ? "noted" : e.status.ToString());
}
void Coordinator::Do(const Answer& e) {
  if (recorder_) recorder_->Outcome("answer", 0, e.text.ok() ? *e.text : e.text.status().ToString());
  const Reply reply = std::move(replies_.front());
  replies_.pop_front();
  reply(e.text);
}

void Coordinator::Send(PeerId peer, SharedMessage message) {
  if (recorder_ && message == report_message_) {
    // All nodes receive the same report, which may be large, so its digest is computed only once.
    if (report_digest_.empty()) report_digest_ = DigestOf(message->SerializeAsString());
    recorder_->Outcome("send", peer, report_digest_);
  } else if (recorder_) {
    recorder_->Outcome("send", peer, message->SerializeAsString());
  }
  if (const auto it = peers_.find(peer); it != peers_.end()) it->second->Send(std::move(message));
}

boost::json::object Coordinator::Status() const {
  const TimePoint now = timer_->Now();
  static const EventRing kNone;
  boost::json::array jobs;
  for (const auto& [run_id, job] : machine_.jobs()) {
    const auto events = events_.find(run_id);
    jobs.push_back(JobStatus(run_id, job.machine, events == events_.end() ? kNone : events->second, now));
  }
  return {{"service", "ddprun"}, {"protocol", kProtocolVersion}, {"jobs", std::move(jobs)}};
}

absl::StatusOr<std::string> Coordinator::Events(const std::string& run_id, uint64_t after) const {
  ASSIGN_OR_RETURN(const std::string id, machine_.FindJob(run_id));
  const auto events = events_.find(id);
  return events == events_.end() ? "" : events->second.After(after);
}

}  // namespace ddprun
