#include "tests/sim/sim_coordinator.h"

#include <algorithm>
#include <ctime>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "proto/rendezvous.pb.h"
#include "rendezvous/server/round_codec.h"
#include "tests/sim/sim_link.h"

namespace ddprun::sim {
namespace {

// As in the launcher: how long others may take to hear the last word.
constexpr Duration kFarewell = seconds(5);

// Adds the processor time of its life, where that is wanted.
class Stopwatch {
 public:
  explicit Stopwatch(double* sum) : sum_(sum), begin_(sum == nullptr ? 0 : std::clock()) {}
  ~Stopwatch() {
    if (sum_ != nullptr) *sum_ += static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC;
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* const sum_;
  const std::clock_t begin_;
};

}  // namespace

SimCoordinator::SimCoordinator(SimJob* job, SimHost* host, NodeFacts facts)
    : job_(job), host_(host), facts_(std::move(facts)) {}

void SimCoordinator::InProcess(std::function<void()> what) {
  if (!alive_) return;
  if (frozen()) {
    held_.push_back(std::move(what));
  } else {
    what();
  }
}

void SimCoordinator::Freeze() {
  if (++frozen_ == 1) frozen_at_ = job_->clock->now();
}

bool SimCoordinator::has_slept() const {
  return job_->clock->now() < slept_until_ + job_->settings->lease - milliseconds(10);
}

void SimCoordinator::Thaw() {
  if (--frozen_ == 0 && job_->clock->now() - frozen_at_ > job_->settings->lease * 3 / 2) {
    slept_until_ = job_->clock->now();
  }
  while (!held_.empty() && !frozen()) {
    const std::function<void()> what = std::move(held_.front());
    held_.pop_front();
    InProcess(what);
  }
}

void SimCoordinator::Listen() {
  job_->tcp->Listen(host_->id(), SimLink::kPort, [this](SimSocket socket, HostId) {
    const PeerId id = Attach(
        [this, socket](const std::string& bytes, bool last) {
          ++load_.messages;
          job_->tcp->Send(socket, bytes);
          if (last) job_->tcp->Shutdown(socket);
        },
        /*in_process=*/false);
    sockets_[id] = socket;
    return SimTcp::Handlers{.on_message = [this, id](const std::string& bytes) { Receive(id, bytes); },
                            .on_end =
                                [this, id](StreamEnd end) {
                                  Detach(id, end == StreamEnd::kHungUp ? "it hung up" : "connection reset");
                                }};
  });
}

SimCoordinator::PeerId SimCoordinator::Attach(Send send, bool in_process) {
  peers_[next_peer_] = {.send = std::move(send), .in_process = in_process};
  return next_peer_++;
}

void SimCoordinator::Receive(PeerId id, const std::string& bytes) {
  InProcess([this, id, bytes] { OnMessage(id, bytes); });
}

void SimCoordinator::Detach(PeerId id, const std::string& reason) {
  InProcess([this, id, reason] { Lost(id, reason); });
}

void SimCoordinator::OnMessage(PeerId id, const std::string& bytes) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return;
  Peer& peer = it->second;
  proto::AgentMessage message;
  ++load_.messages;
  const Stopwatch stopwatch(checked_ ? nullptr : &load_.machine_cpu);
  if (!message.ParseFromString(bytes)) {
    return job_->trace->Broken(job_->clock->now(), "a message does not parse");
  }
  if (!peer.joined) {
    peer.joined = true;
    if (!message.has_join()) return job_->trace->Broken(job_->clock->now(), "the first message is no join");
    Join(id, message.join());
  } else if (!peer.node.empty()) {
    const absl::StatusOr<RoundEvent> event = DecodeEvent(message, peer.node);
    if (!event.ok()) return job_->trace->Broken(job_->clock->now(), event.status().message());
    heard_[peer.node] = job_->clock->now();
    Step(*event);
    if (message.has_leave()) {
      nodes_.erase(peer.node);
      peer.node.clear();
    }
    if (message.has_heartbeat() && !peer.node.empty()) {
      proto::CoordinatorMessage answer;
      answer.mutable_heard();
      peer.send(answer.SerializeAsString(), false);
    }
  }
  MaybeForget();
}

void SimCoordinator::Join(PeerId id, const proto::Join& join) {
  Peer& peer = peers_.at(id);
  if (!closing_.empty()) {
    proto::CoordinatorMessage message;
    *message.mutable_dismiss() = EncodeDismiss(Dismissal::kCoordinatorEnded, closing_);
    return peer.send(message.SerializeAsString(), true);
  }
  const absl::StatusOr<RoundPolicy> rules = DecodeRules(join.rules());
  absl::StatusOr<NodeInfo> info = DecodeJoin(join, "");
  if (!rules.ok() || !info.ok()) {
    return job_->trace->Broken(
        job_->clock->now(),
        absl::StrCat("a join does not decode: ", rules.status().message(), info.status().message()));
  }
  if (machine_ == nullptr) {
    machine_ = std::make_unique<RoundMachine>(*rules);
    rules_ = std::make_unique<RoundRules>(job_->trace, *rules, facts_);
  }
  info->leased = !peer.in_process;
  peer.node = info->id;
  nodes_[info->id] = id;
  heard_[info->id] = job_->clock->now();

  proto::CoordinatorMessage welcome;
  // The coordinator's own agent has no lease; it says how far its workers are.
  welcome.mutable_welcome()->set_heartbeat_ms(info->leased ? ToMillis(rules->lease / 4) : 1000);
  peer.send(welcome.SerializeAsString(), false);
  Step(NodeJoined{*std::move(info), DecodeExpectedHosts(join)});
}

void SimCoordinator::Lost(PeerId id, const std::string& reason) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return;
  const NodeId node = it->second.node;
  peers_.erase(it);
  if (const auto socket = sockets_.find(id); socket != sockets_.end()) {
    job_->tcp->Close(socket->second);
    sockets_.erase(socket);
  }
  if (!node.empty()) {
    nodes_.erase(node);
    Step(NodeLost{node, reason});
  }
  MaybeForget();
}

void SimCoordinator::Step(const RoundEvent& event) {
  const RoundEffects effects = machine_->Step(event, host_->now());
  if (checked_) rules_->Check(event, effects, *machine_, host_->now(), job_->clock->now());
  for (const RoundEffect& effect : effects) {
    if (const auto* note = std::get_if<Note>(&effect)) {
      job_->trace->Line(job_->clock->now(), absl::StrCat("coordinator ", note->event, ": ", note->reason));
      continue;
    }
    const std::optional<Addressed> out = EncodeEffect(effect);
    const auto it = nodes_.find(out->node);
    if (it == nodes_.end()) continue;  // gone meanwhile
    Peer& peer = peers_.at(it->second);
    peer.send(out->message.SerializeAsString(), out->last);
    if (!out->last) continue;
    peer.node.clear();
    nodes_.erase(it);
  }
  SetTimer();
}

void SimCoordinator::MaybeForget() {
  if (machine_ == nullptr || machine_->state() != RoundMachine::State::kGathering) return;
  if (machine_->membership().size() > 0) return;
  job_->trace->Line(job_->clock->now(), "coordinator job_forgotten");
  Count(before_);
  machine_.reset();
  rules_.reset();
}

void SimCoordinator::SetTimer() {
  const std::optional<TimePoint> due = machine_->NextDeadline();
  if (!due || (timer_at_ && *timer_at_ <= *due)) return;
  timer_at_ = *due;
  host_->At(*due, [this, at = *due] {
    InProcess([this, at] {
      if (timer_at_ != at) return;
      timer_at_.reset();
      if (machine_ == nullptr) return;
      Step(Tick{});
      MaybeForget();
    });
  });
}

bool SimCoordinator::DrainHost(const std::string& host) {
  if (!alive_ || frozen() || machine_ == nullptr) return false;
  for (const auto& [id, member] : machine_->membership().members()) {
    if (member.info.host != host || !member.info.leased) continue;
    Step(DrainRequested{id, "an operator says so"});
    MaybeForget();
    return true;
  }
  return false;
}

void SimCoordinator::StopJob() {
  if (!alive_ || frozen() || machine_ == nullptr) return;
  Step(CloseRequested{Dismissal::kStopped, "an operator stops the job"});
}

void SimCoordinator::Close() {
  if (!alive_) return;
  closing_ = "the agent that hosts the coordinator has ended";
  if (machine_ != nullptr) Step(CloseRequested{Dismissal::kCoordinatorEnded, closing_});
  host_->After(kFarewell, [this] { Kill(); });
}

void SimCoordinator::Kill() {
  if (!std::exchange(alive_, false)) return;
  job_->trace->Line(job_->clock->now(), "the coordinator is gone");
  job_->tcp->Unlisten(host_->id(), SimLink::kPort);
  for (const auto& [id, socket] : sockets_) job_->tcp->Close(socket);
}

void SimCoordinator::ThawAll() {
  frozen_ = std::min(frozen_, 1);
  if (frozen()) Thaw();
}

void SimCoordinator::Count(SimResult& result) const {
  if (rules_ == nullptr) return;
  result.rounds += rules_->rounds_sealed();
  result.restarts += rules_->restarts();
  result.reports += rules_->reports();
  result.drained += rules_->drained();
  result.interrupts += rules_->interrupts();
  result.snapshots_waited_for += rules_->snapshots_waited_for();
  result.succeeded += closed() && machine_->outcome() == Dismissal::kSucceeded;
}

void SimCoordinator::AddCounts(SimResult& result) const {
  result.Add(before_);
  Count(result);
}

std::optional<TimePoint> SimCoordinator::heard(const NodeId& node) const {
  const auto it = heard_.find(node);
  if (it == heard_.end()) return std::nullopt;
  return it->second;
}

}  // namespace ddprun::sim
