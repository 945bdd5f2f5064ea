#include "tests/sim/world/sim_coordinator.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/rendezvous.pb.h"
#include "tests/sim/world/hang_rules.h"
#include "tests/sim/world/message_text.h"
#include "tests/sim/world/sim_link.h"
#include "tests/sim/world/sim_timer.h"

namespace ddprun::sim {
namespace {

constexpr char kRunId[] = "sim";
constexpr char kHostEnded[] = "the agent that hosts the coordinator has ended";

// Time that agents have to receive their last message before the coordinator exits, as in the launcher.
constexpr Duration kFarewell = seconds(5);

// Adds the CPU time between construction and destruction to `*sum`, unless `sum` is null.
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

class SimCoordinator::Peer final : public AgentPeer {
 public:
  Peer(SimJob* job, SimCoordinator::Send send, bool in_process, Observer observe, std::function<void()> end,
       std::string address)
      : job_(job),
        send_(std::move(send)),
        in_process_(in_process),
        observe_(std::move(observe)),
        end_(std::move(end)),
        address_(std::move(address)) {}

  void Send(SharedMessage message) override {
    if (observe_) observe_(*message);
    if (job_->trace->has_details()) {
      const std::string text = MessageText(*message);
      if (!text.empty())
        job_->trace->Detail(job_->clock->now(), absl::StrCat("coordinator -> ", node.value(), ": ", text));
    }
    send_(message->SerializeAsString(), message->has_dismiss());
  }
  void End() override {
    if (end_) end_();
  }
  std::string address() const override { return address_; }
  bool in_process() const override { return in_process_; }

  PeerId id = 0;
  NodeId node;  // from the peer's Join; empty before the Join

 private:
  SimJob* const job_;
  const SimCoordinator::Send send_;
  const bool in_process_;
  const Observer observe_;
  const std::function<void()> end_;
  const std::string address_;
};

SimCoordinator::SimCoordinator(SimJob* job, SimHost* host, NodeFacts facts,
                               std::optional<Registered> registered)
    : job_(job),
      host_(host),
      facts_(std::move(facts)),
      registered_(std::move(registered)),
      port_(registered_ ? registered_->port : SimLink::kPort),
      coordinator_(std::make_unique<Coordinator>(
          std::make_unique<SimTimer>(host_, job_->trace,
                                     [this](std::function<void()> what) { InProcess(std::move(what)); }),
          [this](absl::string_view event, absl::string_view, absl::string_view reason) {
            OnLog(event, reason);
          },
          CoordinatorLimits{.registered = registered_.has_value()})) {
  coordinator_->machine_for_test().ObserveForTest(
      [this](const RoundEvent& event, const RoundEffects& effects, const RoundMachine& machine) {
        Check(event, effects, machine);
      });
}

SimCoordinator::~SimCoordinator() = default;

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
  return job_->clock->now() < slept_until_ + job_->settings->rules.lease - milliseconds(10);
}

void SimCoordinator::Thaw() {
  if (--frozen_ == 0 && job_->clock->now() - frozen_at_ > job_->settings->rules.lease * 3 / 2) {
    slept_until_ = job_->clock->now();
  }
  while (!held_.empty() && !frozen()) {
    const std::function<void()> what = std::move(held_.front());
    held_.pop_front();
    InProcess(what);
  }
}

void SimCoordinator::Listen() {
  ListenToWardens();
  if (registered_) ListenForJob();
  job_->tcp->Listen(host_->id(), port_, [this](SimSocket socket, HostId peer) {
    const ConnectionId id = Attach(
        [this, socket](const std::string& bytes, bool last) {
          ++load_.messages;
          job_->tcp->Send(socket, bytes);
          if (last) job_->tcp->Shutdown(socket);
        },
        /*in_process=*/false,
        registered_ ? std::function<void()>([this, socket] { job_->tcp->Shutdown(socket); }) : nullptr,
        absl::StrCat(peer));
    sockets_[id] = socket;
    return SimTcp::Handlers{.on_message = [this, id](const std::string& bytes) { Receive(id, bytes); },
                            .on_end =
                                [this, id](StreamEnd end) {
                                  Detach(id, end == StreamEnd::kHungUp ? "it hung up" : "connection reset");
                                }};
  });
}

void SimCoordinator::ListenToWardens() {
  job_->tcp->Listen(
      host_->id(), registered_ ? port_ + kGonePortOffset : kGonePort, [this](SimSocket, HostId) {
        return SimTcp::Handlers{.on_message =
                                    [this](const std::string& text) {
                                      InProcess([this, text] {
                                        const size_t space = text.find(' ');
                                        const absl::Status status = coordinator_->ReportGone(
                                            kRunId, NodeId(text.substr(0, space)), text.substr(space + 1));
                                        if (absl::IsPermissionDenied(status)) {
                                          job_->trace->Broken(job_->clock->now(), status.message());
                                        }
                                      });
                                    },
                                .on_end = [](StreamEnd) {}};
      });
}

void SimCoordinator::ListenForJob() {
  job_->tcp->Listen(host_->id(), port_ + kJobPortOffset, [this](SimSocket socket, HostId) {
    return SimTcp::Handlers{.on_message =
                                [this, socket](const std::string&) {
                                  InProcess([this, socket] {
                                    const bool has_job = coordinator_->HasJob(kRunId);
                                    job_->tcp->Send(socket, has_job           ? "yes"
                                                            : leader_.empty() ? "no"
                                                                              : absl::StrCat("at ", leader_));
                                  });
                                },
                            .on_end = [](StreamEnd) {}};
  });
}

SimCoordinator::ConnectionId SimCoordinator::Attach(Send send, bool in_process, std::function<void()> end,
                                                    std::string address) {
  const ConnectionId id = next_connection_++;
  Peer* const peer = (peers_[id] = std::make_unique<Peer>(job_, std::move(send), in_process,
                                                          registered_ ? registered_->observe : Observer(),
                                                          std::move(end), std::move(address)))
                         .get();
  InProcess([this, peer] { peer->id = coordinator_->Attach(peer); });
  return id;
}

void SimCoordinator::Receive(ConnectionId id, const std::string& bytes) {
  InProcess([this, id, bytes] { OnMessage(id, bytes); });
}

void SimCoordinator::OnMessage(ConnectionId id, const std::string& bytes) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return;
  Peer& peer = *it->second;
  proto::AgentMessage message;
  ++load_.messages;
  const Stopwatch stopwatch(checked_ ? nullptr : &load_.machine_cpu);
  if (!message.ParseFromString(bytes)) {
    return job_->trace->Broken(job_->clock->now(), "a message does not parse");
  }
  if (message.has_join()) peer.node = NodeId(message.join().node_id());
  heard_[peer.node] = job_->clock->now();
  coordinator_->Receive(peer.id, message);
}

void SimCoordinator::Detach(ConnectionId id, const std::string& reason) {
  InProcess([this, id, reason] {
    const auto it = peers_.find(id);
    if (it == peers_.end()) return;
    coordinator_->Detach(it->second->id, reason);
    peers_.erase(it);
    if (const auto socket = sockets_.find(id); socket != sockets_.end()) {
      job_->tcp->Close(socket->second);
      sockets_.erase(socket);
    }
  });
}

void SimCoordinator::OnLog(absl::string_view event, absl::string_view reason) {
  job_->trace->Line(job_->clock->now(), absl::StrCat("coordinator ", event, ": ", reason));
  if (event == "bad_message") job_->trace->Broken(job_->clock->now(), reason);
  if (event != "job_forgotten") return;
  Count(before_);
  rules_.reset();
}

void SimCoordinator::Check(const RoundEvent& event, const RoundEffects& effects,
                           const RoundMachine& machine) {
  job_->hangs->Check(this, event, effects, machine);
  if (resumed_) return;
  if (rules_ == nullptr) rules_ = std::make_unique<RoundRules>(job_->trace, machine.policy(), facts_);
  if (checked_) rules_->Check(event, effects, machine, host_->now(), job_->clock->now());
}

const RoundMachine* SimCoordinator::machine() const {
  const auto& jobs = coordinator_->machine_for_test().jobs();
  const auto it = jobs.find(kRunId);
  return it == jobs.end() ? nullptr : &it->second.machine;
}

bool SimCoordinator::DrainHost(const std::string& host) {
  if (!alive_ || frozen() || machine() == nullptr) return false;
  for (const auto& [id, member] : machine()->membership().members()) {
    if (member.info.host != host || !member.info.leased) continue;
    // With a register, the answer may come later.
    const auto taken = std::make_shared<bool>(registered_.has_value());
    coordinator_->Drain(kRunId, id.value(), "requested by an operator",
                        [taken](const absl::StatusOr<std::string>& answer) { *taken = answer.ok(); });
    return *taken;
  }
  return false;
}

bool SimCoordinator::PreemptHost(const std::string& host, Duration left, std::optional<Duration> back_in) {
  if (!alive_ || frozen() || machine() == nullptr) return false;
  for (const auto& [id, member] : machine()->membership().members()) {
    if (member.info.host != host) continue;
    const auto given = std::make_shared<bool>(registered_.has_value());
    coordinator_->Preempt({.run_id = kRunId,
                           .node = id.value(),
                           .reason = "requested by an operator",
                           .left = left,
                           .back_in = back_in},
                          [given](const absl::StatusOr<std::string>& answer) { *given = answer.ok(); });
    return *given;
  }
  return false;
}

void SimCoordinator::StopJob() {
  if (!alive_ || frozen()) return;
  coordinator_->Stop(kRunId, "an operator stops the job", [](const auto&) {});
}

void SimCoordinator::Close(bool at_once) {
  InProcess([this, at_once] {
    coordinator_->set_on_step([this] {
      if (coordinator_->num_open_jobs() > 0 || std::exchange(said_farewell_, true)) return;
      host_->After(kFarewell, [this] { Kill(); });
    });
    if (!std::exchange(closing_, true)) coordinator_->CloseAll(kHostEnded);
    if (at_once) coordinator_->CloseAll(kHostEnded, /*at_once=*/true);
  });
}

void SimCoordinator::BeginRules() {
  Count(before_);
  rules_.reset();
  resumed_ = machine() != nullptr;
}

void SimCoordinator::CloseRegistered(bool at_once, std::function<void()> done) {
  InProcess([this, at_once, done = std::move(done)] {
    if (!std::exchange(closing_, true)) {
      closed_ = done;
      const auto end = [this] {
        if (closed_ == nullptr) return;
        host_->After(Duration(0), [this] {
          InProcess([this] {
            if (closed_ != nullptr) std::exchange(closed_, nullptr)();
          });
        });
      };
      coordinator_->set_on_step([this, end] {
        if (coordinator_->num_peers() == 0) return end();
        if (coordinator_->num_open_jobs() > 0 || std::exchange(said_farewell_, true)) return;
        host_->After(kFarewell, end);
      });
      coordinator_->CloseAll(kHostEnded);
    }
    if (at_once) coordinator_->CloseAll(kHostEnded, /*at_once=*/true);
  });
}

void SimCoordinator::Kill() {
  if (!std::exchange(alive_, false)) return;
  if (!registered_) job_->trace->Line(job_->clock->now(), "the coordinator has exited");
  for (const int port : {port_, port_ + kGonePortOffset, port_ + kJobPortOffset, port_ + kVotePortOffset}) {
    job_->tcp->Unlisten(host_->id(), port);
  }
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
  result.notices += rules_->notices().given();
  result.preempted += rules_->notices().preempted();
  result.snapshots_waited_for += rules_->snapshots_waited_for();
  result.succeeded += !registered_ && closed() && machine()->outcome() == Dismissal::kSucceeded;
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
