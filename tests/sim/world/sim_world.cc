#include "tests/sim/world/sim_world.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sim/plan.h"
#include "tests/sim/world/disturbances.h"
#include "tests/sim/world/hang_rules.h"
#include "tests/sim/world/host_state.h"
#include "tests/sim/world/registered_world.h"
#include "tests/sim/world/sim_agent.h"
#include "tests/sim/world/sim_coordinator.h"

namespace ddprun::sim {
namespace {

// Limit on the time from calm to the end of the job. Last calls, drains and all remaining steps take less.
constexpr Duration kBound = seconds(1800);
// Time from calm to the start of missing agents. Agents that cannot rejoin the job exit within this time.
constexpr Duration kSettle = seconds(20);
// Time that a resumed host needs to kill workers whose fence has expired.
constexpr Duration kWakeUp = milliseconds(30);

class World {
 public:
  World(const Script& script, Trace trace, RecordSteps record)
      : script_(script),
        record_(std::move(record)),
        settings_(script_.settings),
        trace_(std::move(trace)),
        network_(&clock_, Random(settings_.seed, "network"),
                 {.max_delay = settings_.max_delay,
                  .loss = settings_.loss_permille / 1000.0,
                  .twice = settings_.twice_permille / 1000.0}),
        tcp_(&clock_, &network_),
        disk_(&clock_, &trace_, Random(settings_.seed, "disk")),
        state_([this](const std::string& rule) { Broken(rule); }),
        random_(settings_.seed, "world"),
        hangs_(&settings_, &clock_, &trace_) {
    job_.settings = &settings_;
    job_.hangs = &hangs_;
    job_.clock = &clock_;
    job_.tcp = &tcp_;
    job_.disk = &disk_;
    job_.trace = &trace_;
    job_.state = &state_;
    job_.fired = [this](FaultKind kind) { ++result_.fired[kind]; };
    job_.fence_fell = [this](const std::string& host) { CheckFalseAlarm(host); };
    job_.host_of = [this](const std::string& addr) { return by_addr_.at(addr); };
    for (int i = 0; i < settings_.num_hosts; ++i) AddHost(absl::StrCat("host", i));
    if (settings_.with_register) {
      registered_.emplace(&job_, &hosts_, [this](const SimHost& host) { return RecentlySuspended(host); });
    } else if (!settings_.hosted) {
      AddHost("coordinator");
      StartCoordinator();
    }
  }

  SimResult Run() {
    trace_.Line(clock_.now(), absl::StrCat("a job of ", settings_.rules.min_nodes, " to ",
                                           settings_.rules.max_nodes, " nodes in steps of ",
                                           settings_.rules.node_unit, ", ", settings_.rules.max_restarts,
                                           " restarts, lease ", ToMillis(settings_.rules.lease), " ms"));
    for (const Fault& fault : script_.faults) {
      clock_.At(SimClock::kStart + fault.at, [this, &fault] { Do(fault); });
    }
    const TimePoint calm = SimClock::kStart + settings_.calm;
    clock_.At(calm, [this] { Calm(); });
    while (!clock_.idle() && trace_.broken().empty() && clock_.now() < calm + kBound && !Over()) {
      clock_.RunOne();
      ++result_.events;
      CheckFences();
    }
    if (trace_.broken().empty() && !Over()) {
      Broken(absl::StrCat("the job did not end within ", kBound / seconds(1), " s of calm"));
    }
    CheckEnd();
    return Result();
  }

 private:
  using Host = HostState;

  void Broken(const std::string& rule) { trace_.Broken(clock_.now(), rule); }
  void Say(const std::string& text) { trace_.Line(clock_.now(), text); }

  void AddHost(const std::string& name) {
    hosts_.push_back(std::make_unique<Host>(std::make_unique<SimHost>(
        name, &clock_, &tcp_, &network_, Random(settings_.seed, name), DriftPpm(settings_))));
    by_addr_[hosts_.back()->host->addr()] = hosts_.back()->host->id();
  }
  bool hosted() const { return settings_.hosted && !registered_; }
  int coordinator_host() const { return hosted() || registered_ ? 0 : settings_.num_hosts; }
  SimCoordinator* coordinator() {
    if (registered_)
      return registered_->leader() == nullptr ? nullptr : &registered_->leader()->coordinator();
    return coordinators_.empty() ? nullptr : coordinators_.back().get();
  }
  bool coordinator_alive() { return coordinator() != nullptr && coordinator()->alive(); }
  bool HasWorkers(const NodeId& id) const {
    const SimAgent* agent = Find(id.value());
    return agent != nullptr && agent->warden().unparked() > 0 && !RecentlySuspended(agent->host());
  }

  void StartCoordinator() {
    coordinators_.push_back(std::make_unique<SimCoordinator>(
        &job_, hosts_[coordinator_host()]->host.get(),
        NodeFacts{.has_workers = [this](const NodeId& id) { return HasWorkers(id); },
                  .has_slept = [this] { return coordinator()->has_slept(); }}));
    if (record_) coordinators_.back()->RecordTo(record_());
    coordinators_.back()->Listen();
  }
  const SimAgent* Find(const std::string& id) const {
    const auto it = by_node_.find(id);
    return it == by_node_.end() || it->second->id() != id ? nullptr : it->second;
  }
  // Whether the host is suspended, or resumed so recently that it may not have killed fenced workers yet.
  bool RecentlySuspended(const SimHost& host) const {
    return host.suspended() || clock_.now() <= host.resumed_at() + kWakeUp;
  }

  // --- Faults

  bool Start(int index) {
    Host& host = *hosts_[index];
    if (registered_ && !registered_->MayStart(index)) return false;
    if (host.live() != nullptr || !host.host->powered() || host.host->suspended()) return false;
    const bool hosts_it = hosted() && index == 0;
    // The port is in use until the previous coordinator has exited.
    if (hosts_it && coordinator_alive()) return false;
    if (hosts_it) StartCoordinator();
    std::vector<std::string> expected;
    for (int i = 0; i < settings_.expected_hosts; ++i) expected.push_back(hosts_[i]->host->name());
    SimRegisteredJob* const registered =
        registered_ ? registered_->Start(index, [this](const NodeId& id) { return HasWorkers(id); })
                    : nullptr;
    if (registered != nullptr && record_) registered->coordinator().RecordTo(record_());
    auto agent = std::make_unique<SimAgent>(
        SimAgent::Place{.job = &job_,
                        .host = host.host.get(),
                        .habits = &host.habits,
                        .coordinator_host = hosts_[coordinator_host()]->host->id(),
                        .local = hosts_it ? coordinator() : nullptr,
                        .registered = registered,
                        .new_node_id = [this, &host] { return NewNodeId(host); },
                        .new_port = [&host] { return host.next_port++; },
                        .ended =
                            [this, hosts_it, registered, c = coordinator()](bool in_a_hurry) {
                              if (hosts_it) c->Close(in_a_hurry);
                              if (registered != nullptr) registered->Close(in_a_hurry);
                              if (registered != nullptr && in_a_hurry) trouble_until_ = clock_.now();
                            },
                        .nproc = 1 + index % 3,
                        .expected_hosts = std::move(expected)});
    host.agents.push_back(std::move(agent));
    host.agents.back()->Start();
    return true;
  }
  std::string NewNodeId(Host& host) {
    const std::string id = absl::StrCat("n", next_node_++, "@", host.host->name());
    by_node_[id] = host.agents.back().get();
    if (!joined_.insert(host.agents.back().get()).second) ++result_.rejoins;
    return id;
  }

  void Do(Fault fault) {
    Say(absl::StrCat("* ", ToString(fault)));
    if (MaySilence(fault.kind)) trouble_until_ = std::max(trouble_until_, clock_.now() + fault.length);
    hangs_.DisturbedUntil(trouble_until_);
    if (registered_) {
      const bool of_hosts = !fault.hosts.empty();
      fault.hosts = registered_->Resolve(fault.hosts);
      fault.to = registered_->Resolve(fault.to);
      if (of_hosts && fault.hosts.empty()) return;
      registered_->rules().DisturbedUntil(trouble_until_);
    }
    const std::function<void()> heal = registered_ ? registered_->Disturb(fault) : nullptr;
    bool fired = heal != nullptr;
    if (fired) {
      Later(fault, heal);
    } else if (fault.hosts.empty()) {
      fired = DoToAll(fault);
    } else if (IsOfNetwork(fault.kind)) {
      fired = Disturb(fault);
    } else {
      for (const int host : fault.hosts) fired = DoToHost(fault, host) || fired;
    }
    if (fired) ++result_.fired[fault.kind];
  }
  // Calls `undo` after the fault's length, unless calm has already undone all faults.
  void Later(const Fault& fault, std::function<void()> undo) {
    clock_.After(fault.length, [this, undo = std::move(undo)] {
      if (!job_.calm) undo();
    });
  }

  bool DoToAll(const Fault& fault) {
    switch (fault.kind) {
      case FaultKind::kStall:
        // A hosted coordinator stops together with the agent in its process.
        if (hosted()) return StopAgent(fault, 0);
        if (!coordinator_alive()) return false;
        if (registered_) return StopAgent(fault, registered_->Resolve({settings_.num_hosts})[0]);
        coordinator()->Freeze();
        Later(fault, [c = coordinator()] { c->Thaw(); });
        return true;
      case FaultKind::kEndCoordinator:
        if (!coordinator_alive()) return false;
        if (registered_) return registered_->KillLeader();
        if (hosted() && hosts_[0]->live() != nullptr) hosts_[0]->live()->Kill();
        coordinator()->Kill();
        return true;
      case FaultKind::kDiskFull:
        disk_.SetFull(++disk_full_ > 0);
        Later(fault, [this] { disk_.SetFull(--disk_full_ > 0); });
        return true;
      case FaultKind::kDiskSlow:
        disk_.SetDelay(milliseconds(fault.n));
        Later(fault, [this] { disk_.SetDelay(Duration(0)); });
        return true;
      case FaultKind::kStopJob:
        if (!coordinator_alive()) return false;
        coordinator()->StopJob();
        return true;
      default:
        Broken(absl::StrCat(ToString(fault), ": this fault requires host="));
        return false;
    }
  }

  bool DoToHost(const Fault& fault, int index) {
    Host& host = *hosts_[index];
    SimAgent* const agent = host.live();
    const bool hosts_it = hosted() && index == 0;
    if (IsOfWorkers(fault.kind)) return DoToWorkers(fault, host, clock_.now());
    switch (fault.kind) {
      case FaultKind::kStart:
        return index < settings_.num_hosts && Start(index);
      case FaultKind::kKillAgent:
        if (agent == nullptr) return false;
        agent->Kill();
        if (registered_) registered_->Kill(index);
        if (hosts_it) coordinator()->Kill();
        return true;
      case FaultKind::kStopAgent:
        return StopAgent(fault, index);
      case FaultKind::kTermAgent:
        if (agent != nullptr) {
          agent->Signal(SIGTERM);
        } else if (hosts_it && coordinator_alive()) {
          coordinator()->Close(/*at_once=*/true);  // The process only waits for other nodes.
        } else {
          return false;
        }
        return true;
      case FaultKind::kKillWarden:
        if (agent == nullptr) return false;
        agent->KillWarden();
        return true;
      case FaultKind::kPowerOff:
        if (++host.outages > 1) {
          Later(fault, [&host] { --host.outages; });
          return false;
        }
        if (hosts_it && coordinator_alive()) coordinator()->Kill();
        host.host->PowerOff();
        if (registered_) registered_->Kill(index);
        for (const auto& life : host.agents) life->Vanish();
        Later(fault, [&host] {
          if (--host.outages == 0) host.host->PowerOn();
        });
        return agent != nullptr;
      case FaultKind::kSuspend:
        if (!host.host->powered()) return false;
        if (++host.suspends == 1) Suspend(host);
        Later(fault, [this, &host] {
          if (--host.suspends == 0) Resume(host);
        });
        return agent != nullptr;
      case FaultKind::kDeafWorkers:
        return SetHabit(fault, host, &HostHabits::deaf, &Host::deaf);
      case FaultKind::kNoExec:
        return SetHabit(fault, host, &HostHabits::no_exec, &Host::no_exec);
      case FaultKind::kHangWorkers:
        return SetHabit(fault, host, &HostHabits::hang, &Host::hang);
      case FaultKind::kReset:
        return agent != nullptr && agent->ResetLink();
      case FaultKind::kNotice:
        if (fault.n == 0) {
          if (agent == nullptr) return false;
          agent->GiveNotice(fault.length);
          return true;
        }
        return coordinator_alive() &&
               coordinator()->PreemptHost(
                   host.host->name(), fault.length,
                   fault.n > 0 ? std::optional<Duration>(milliseconds(fault.n)) : std::nullopt);
      case FaultKind::kDrain:
        return coordinator_alive() && coordinator()->DrainHost(host.host->name());
      default:
        Broken(absl::StrCat(ToString(fault), ": this fault takes no host="));
        return false;
    }
  }

  bool SetHabit(const Fault& fault, Host& host, bool HostHabits::*habit, int Host::*count) {
    host.habits.*habit = ++(host.*count) > 0;
    Later(fault, [&host, habit, count] { host.habits.*habit = --(host.*count) > 0; });
    return host.live() != nullptr;
  }

  bool StopAgent(const Fault& fault, int index) {
    Host& host = *hosts_[index];
    SimAgent* const agent = host.live();
    if (agent == nullptr) return false;
    SimCoordinator* const local = hosted() ? CoordinatorOn(host) : nullptr;
    if (++stops_[agent] == 1) agent->Freeze();
    if (local != nullptr) local->Freeze();
    if (registered_) registered_->Freeze(index);
    Later(fault, [this, agent, local, index] {
      if (registered_) registered_->Thaw(index);
      if (--stops_[agent] == 0) agent->Thaw();
      if (local != nullptr) local->Thaw();
    });
    return true;
  }
  // The coordinator of a job without a register, if it runs on this host.
  SimCoordinator* CoordinatorOn(const Host& host) {
    return !registered_ && coordinator_alive() && &host == hosts_[coordinator_host()].get() ? coordinator()
                                                                                            : nullptr;
  }
  void Suspend(Host& host) {
    host.Suspend();
    if (SimCoordinator* const c = CoordinatorOn(host)) c->Freeze();
  }
  void Resume(Host& host) {
    if (!host.host->suspended()) return;
    if (SimCoordinator* const c = CoordinatorOn(host)) c->Thaw();
    host.Resume(/*writer_first=*/random_.Chance(0.5));
  }

  bool Disturb(const Fault& fault) {
    std::vector<HostId> ids;
    for (const auto& host : hosts_) ids.push_back(host->host->id());
    const std::vector<Disturbance> disturbances = DisturbancesOf(fault, ids);
    for (const Disturbance& d : disturbances)
      Later(fault, [this, id = network_.Disturb(d)] { network_.Heal(id); });
    return !disturbances.empty();
  }

  void Calm() {
    Say("calm: there are no more faults");
    job_.calm = true;
    network_.HealAll({});
    disk_.SetFull(false);
    disk_.SetDelay(Duration(0));
    for (const auto& host : hosts_) {
      if (!host->host->powered()) host->host->PowerOn();
      Resume(*host);
      host->habits = {};
      if (SimAgent* const agent = host->live(); agent != nullptr && agent->frozen()) agent->Thaw();
    }
    if (!registered_ && coordinator_alive()) coordinator()->ThawAll();
    if (registered_) registered_->Calm();
    clock_.After(kSettle, [this] { StartAll(); });
  }
  // Starts an agent on each host whose agent has exited or was never started.
  void StartAll() {
    started_all_ = true;
    if (registered_ ? registered_->closed() : coordinator_alive() && coordinator()->closed()) return;
    if (!registered_ && !hosted() && !coordinator_alive()) StartCoordinator();
    for (int i = 0; i < settings_.num_hosts; ++i) {
      clock_.After(random_.Between(milliseconds(i > 0), milliseconds(i > 0 ? 500 : 0)), [this, i] {
        if (!coordinator_alive() || !coordinator()->closed()) Start(i);
      });
    }
    started_until_ = clock_.now() + milliseconds(500);
  }

  // --- Checks

  bool Over() const {
    if (!started_all_ || clock_.now() <= started_until_) return false;
    if (registered_ && registered_->alive()) return false;
    return std::all_of(hosts_.begin(), hosts_.end(),
                       [](const auto& host) { return host->live() == nullptr; });
  }

  // Checks that the fence did not expire without a fault, nor in the workers' grace period after the job's end.
  void CheckFalseAlarm(const std::string& host) {
    for (const auto& h : hosts_) {
      const std::optional<TimePoint> until =
          h->host->name() == host && h->live() != nullptr ? h->live()->job_over_until() : std::nullopt;
      // A parked worker touches nothing, and does not keep a coordinator from handing over.
      if (registered_ && h->host->name() == host &&
          (h->live() == nullptr || h->live()->warden().unparked() == 0))
        return;
      if (until && h->host->now() < *until) {
        Broken(absl::StrCat("the fence of ", host, " expired in the grace period after the end of the job"));
      }
    }
    if (settings_.loss_permille > 0 || settings_.max_delay > settings_.rules.lease / 20) return;
    if (clock_.now() <= trouble_until_ + 3 * settings_.rules.lease) return;
    Broken(absl::StrCat("the fence of ", host, " expired without a fault"));
  }

  // Checks that no node has workers when a lease has passed since its last message, because the coordinator
  // may have evicted the node. After the end of the job, workers may run until their grace period is over.
  void CheckFences() {
    if (registered_) return registered_->Check();
    if (!coordinator_alive()) return;
    for (const auto& host : hosts_) {
      for (const auto& agent : host->agents) {
        if (agent->warden().alive() == 0 || agent->is_local()) continue;
        const std::optional<TimePoint> heard = coordinator()->heard(NodeId(agent->id()));
        // One millisecond allows for clock drift.
        if (!heard || clock_.now() <= *heard + settings_.rules.lease + milliseconds(1)) continue;
        if (RecentlySuspended(*host->host)) continue;
        const std::optional<TimePoint> until = agent->job_over_until();
        if (until && host->host->now() <= *until + kKillLimit + milliseconds(1)) continue;
        Broken(
            absl::StrCat(agent->id(), " has workers although its lease has passed since its last message"));
      }
    }
  }

  void CheckEnd() {
    if (!trace_.broken().empty()) return;
    for (const auto& host : hosts_) {
      for (const auto& a : host->agents)
        if (a->warden().alive() > 0) Broken(absl::StrCat(a->id(), " left workers behind"));
    }
    if (registered_) return registered_->CheckEnd(disk_.NewestStep());
    if (!coordinator_alive()) return;
    if (coordinator()->machine() != nullptr && !coordinator()->closed()) {
      Broken("all agents have exited, but the job is not closed");
    }
    if (coordinator()->closed() && coordinator()->machine()->outcome() == Dismissal::kSucceeded &&
        !settings_.plain && disk_.NewestStep() < settings_.total_steps) {
      Broken(absl::StrCat("the job succeeded at step ", disk_.NewestStep(), " of ", settings_.total_steps));
    }
  }

  SimResult Result() {
    result_.broken = trace_.broken();
    result_.trace_hash = trace_.hash();
    AddCounts(job_, network_, result_);
    hangs_.AddCounts(result_);
    for (const auto& c : coordinators_) c->AddCounts(result_);
    if (registered_) registered_->AddCounts(result_);
    return result_;
  }

  const Script script_;
  const RecordSteps record_;
  const Settings& settings_;
  Trace trace_;
  SimClock clock_;
  SimNetwork network_;
  SimTcp tcp_;
  SimDisk disk_;
  StateRules state_;
  Random random_;
  HangRules hangs_;
  SimJob job_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::map<std::string, HostId> by_addr_;
  std::map<std::string, const SimAgent*> by_node_;
  std::set<const SimAgent*> joined_;
  std::map<SimAgent*, int> stops_;
  std::optional<RegisteredWorld> registered_;                  // nullopt: the job has no register
  std::vector<std::unique_ptr<SimCoordinator>> coordinators_;  // one per start; only the last may be alive
  int next_node_ = 0, disk_full_ = 0;
  TimePoint trouble_until_ = SimClock::kStart - std::chrono::hours(1);
  bool started_all_ = false;
  TimePoint started_until_;
  SimResult result_;
};

}  // namespace

SimResult RunScript(const Script& script, bool print, RecordSteps record) {
  return World(script, Trace(print), std::move(record)).Run();
}

SimResult TellScript(const Script& script, Trace::Sink sink) {
  return World(script, Trace(std::move(sink)), {}).Run();
}

SimResult RunSeed(uint64_t seed, bool print) { return RunScript(DrawScript(seed), print); }

}  // namespace ddprun::sim
