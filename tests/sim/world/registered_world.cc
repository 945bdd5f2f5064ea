#include "tests/sim/world/registered_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::sim {
namespace {

// The port of the process at the endpoint of a job with voters; those of the others are greater.
constexpr int kFirstPort = 30000;

// When agents are started again after the last fault, and have joined.
constexpr Duration kRestart = seconds(21);
// A lost coordinator is replaced, and the nodes join the next one.
constexpr int kLeases = 3;
// After rounds in a row that have lost nodes.
constexpr Duration kLongestPause = seconds(30);

}  // namespace

RegisteredWorld::RegisteredWorld(SimJob* job, const Hosts* hosts, std::function<bool(const SimHost&)> asleep)
    : job_(job),
      hosts_(*hosts),
      asleep_(std::move(asleep)),
      register_(job->clock, Random(job->settings->seed, "register")),
      watch_([this](const RegisterRecord& before, const RegisterRecord& now) { rules_.Wrote(before, now); },
             [job](const std::string& rule) { job->trace->Broken(job->clock->now(), rule); }),
      voters_([this](const std::string& id) { return Lives(id); }),
      rules_(
          job, [this] { return Running(); }, [this] { return CanHaveLeader(); }) {
  register_.Observe(
      [this](const RegisterRecord& before, const RegisterRecord& now) { rules_.Wrote(before, now); });
}

bool RegisteredWorld::Lives(const std::string& id) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const Process& process) {
    return process.id == id && process.job->coordinator().alive();
  });
}

bool RegisteredWorld::MayStart(int host) const {
  return !voting() || host != 0 ||
         std::none_of(processes_.begin(), processes_.end(),
                      [](const Process& process) { return process.host == 0; });
}

SimRegisteredJob* RegisteredWorld::Start(int host, std::function<bool(const NodeId&)> has_workers) {
  const size_t number = processes_.size() + 1;
  SimHost* const where = hosts_[host]->host.get();
  const std::string id = absl::StrCat("p", number, "@", where->name());
  std::optional<SimRegisteredJob::Voting> voting;
  const bool founds = this->voting() && host == 0;
  if (this->voting()) {
    voting = SimRegisteredJob::Voting{.watch = &watch_,
                                      .voters = &voters_,
                                      .founds = founds,
                                      .endpoint_host = hosts_[0]->host->id(),
                                      .endpoint_port = kFirstPort};
  }
  auto job = std::make_unique<SimRegisteredJob>(SimRegisteredJob::Parts{
      .job = job_,
      .host = where,
      .charter_register = voting ? nullptr : &register_,
      .voting = voting,
      .rules = &rules_,
      .id = id,
      .port = kFirstPort + (founds ? 0 : 10 * static_cast<int>(number)),
      .facts = {.has_workers = std::move(has_workers),
                .has_slept = [this, number] { return processes_[number - 1].job->coordinator().has_slept(); },
                .registered = true}});
  processes_.push_back({host, id, std::move(job)});
  return processes_.back().job.get();
}

SimRegisteredJob* RegisteredWorld::leader() {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].job->leads() && !processes_[i].job->coordinator().frozen()) leader_ = i + 1;
  }
  if (leader_ == 0 || !processes_[leader_ - 1].job->coordinator().alive()) return nullptr;
  return processes_[leader_ - 1].job.get();
}

std::vector<int> RegisteredWorld::Resolve(const std::vector<int>& hosts) {
  std::vector<int> resolved;
  for (const int host : hosts) {
    if (host < job_->settings->num_hosts) {
      resolved.push_back(host);
    } else if (leader() != nullptr) {
      resolved.push_back(processes_[leader_ - 1].host);
    }
  }
  return resolved;
}

void RegisteredWorld::Freeze(int host) {
  for (Process& process : processes_) {
    if (process.host == host && process.job->coordinator().alive()) process.job->coordinator().Freeze();
  }
}
void RegisteredWorld::Thaw(int host) {
  for (size_t i = 0; i < processes_.size(); ++i) {
    SimCoordinator& coordinator = processes_[i].job->coordinator();
    if (processes_[i].host == host && coordinator.alive() && coordinator.frozen()) coordinator.Thaw();
  }
}
void RegisteredWorld::Kill(int host) {
  for (const Process& process : processes_) {
    if (process.host == host) process.job->Kill();
  }
}

bool RegisteredWorld::KillLeader() {
  if (leader() == nullptr) return false;
  const int host = processes_[leader_ - 1].host;
  if (SimAgent* const agent = hosts_[host]->live()) agent->Kill();
  Kill(host);
  return true;
}

std::function<void()> RegisteredWorld::Disturb(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kRegisterDown:
      register_.SetDown(true);
      return [this] { register_.SetDown(false); };
    case FaultKind::kRegisterCut: {
      std::vector<HostId> ids;
      for (const int host : fault.hosts) ids.push_back(hosts_[host]->host->id());
      for (const HostId id : ids) register_.SetCut(id, true);
      return [this, ids] {
        for (const HostId id : ids) register_.SetCut(id, false);
      };
    }
    case FaultKind::kRegisterSlow:
      register_.SetSlow(milliseconds(fault.n));
      return [this] { register_.SetSlow(Duration(0)); };
    case FaultKind::kRegisterLossy:
      register_.SetLossy(fault.n / 100.0);
      return [this] { register_.SetLossy(0); };
    default:
      return nullptr;
  }
}

void RegisteredWorld::Calm() {
  register_.HealAll();
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (processes_[i].job->coordinator().alive()) processes_[i].job->coordinator().ThawAll();
  }
  const JobRules& rules = job_->settings->rules;
  sealed_by_ = job_->clock->now() + kRestart + kLeases * rules.lease + job_->settings->drain_timeout +
               std::max(rules.first_last_call, rules.last_call) + kLongestPause;
}

void RegisteredWorld::CheckSealed() {
  if (!sealed_by_ || job_->clock->now() < *sealed_by_) return;
  sealed_by_.reset();
  if (closed() || quorum_lost_) return;
  // Others do not find the job if the host of the endpoint is lost.
  const auto present = std::count_if(hosts_.begin(), hosts_.end(), [](const auto& host) {
    return host->live() != nullptr && host->live()->registered()->may_lead();
  });
  if (present < job_->settings->rules.min_nodes) return;
  const RoundMachine* const machine = leader() == nullptr ? nullptr : leader()->coordinator().machine();
  const bool gathers = machine == nullptr || machine->state() == RoundMachine::State::kGathering;
  if (gathers)
    job_->trace->Broken(job_->clock->now(),
                        absl::StrCat("no round runs, although ", present, " agents are there"));
}

TakeoverRules::Running RegisteredWorld::Running() const {
  TakeoverRules::Running running;
  for (const auto& host : hosts_) {
    if (asleep_(*host->host)) continue;
    for (const auto& agent : host->agents) {
      if (agent->warden().unparked() == 0) continue;
      running.emplace_back(host->host->name(), agent->warden().workers()->round().value());
    }
  }
  return running;
}

void RegisteredWorld::Check() {
  CheckSealed();
  if (voting() && !quorum_lost_ && voters_.known() && !closed() && !voters_.QuorumLives()) {
    quorum_lost_ = true;
    job_->trace->Line(job_->clock->now(), "the quorum of the voters is lost");
  }
  // An agent that knows no voters is not part of the job yet.
  const bool needs_leader =
      CanHaveLeader() && std::any_of(hosts_.begin(), hosts_.end(), [](const auto& host) {
        return host->live() != nullptr && host->live()->registered()->may_lead();
      });
  const bool leads = std::any_of(processes_.begin(), processes_.end(),
                                 [](const Process& process) { return process.job->leads(); });
  rules_.Check(needs_leader, leads);
}

bool RegisteredWorld::alive() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const Process& process) { return process.job->coordinator().alive(); });
}

void RegisteredWorld::CheckEnd(int64_t newest_step) {
  const bool forgotten = record().charter.empty();
  // Voters keep the register in memory: nothing can be written when they have exited.
  if (!closed() && !forgotten && !quorum_lost_) {
    job_->trace->Broken(job_->clock->now(), "all agents have exited, but the job is not closed");
  }
  const Settings& s = *job_->settings;
  if (rules_.succeeded() > 0 && !s.plain && newest_step < s.total_steps) {
    job_->trace->Broken(job_->clock->now(),
                        absl::StrCat("the job succeeded at step ", newest_step, " of ", s.total_steps));
  }
}

void RegisteredWorld::AddCounts(SimResult& result) const {
  for (const Process& process : processes_) process.job->coordinator().AddCounts(result);
  result.rounds += rules_.rounds_resumed();
  result.takeovers += rules_.takeovers();
  result.hand_overs += rules_.hand_overs();
  result.succeeded += rules_.succeeded();
  if (!voting()) return;
  ++result.voter_runs;
  result.voter_takeovers += rules_.takeovers();
  result.voter_hand_overs += rules_.hand_overs();
  result.voter_changes += voters_.changes();
  result.quorums_lost += quorum_lost_;
}

}  // namespace ddprun::sim
