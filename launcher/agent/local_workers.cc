#include "launcher/agent/local_workers.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "launcher/agent/output_plans.h"
#include "launcher/agent/worker_command_text.h"
#include "launcher/agent/worker_environment.h"
#include "launcher/numa/binding.h"

namespace ddprun {
namespace {

// For output that is on its way when nobody writes any more: longer only if a file system hangs, or a console
// that has to take it before there is room in a file.
constexpr Duration kDrainLimit = seconds(2);

// "after step 57 (epoch 2)"
std::string InWords(const proto::WorkerReport& report) {
  std::string progress = absl::StrCat("after step ", report.step());
  if (!report.message().empty()) absl::StrAppend(&progress, " (", report.message(), ")");
  return progress;
}

// As scripts that call gethostname know this machine; empty if it has no name.
std::string HostNameOfSystem() {
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, HOST_NAME_MAX);
  return name;
}

// "training"; empty if it did not say.
std::string PhaseOf(const proto::WorkerReport& report) {
  if (report.phase() == proto::WORKER_PHASE_UNSPECIFIED || !proto::WorkerPhase_IsValid(report.phase()))
    return "";
  const std::string name = proto::WorkerPhase_Name(report.phase());
  return absl::AsciiStrToLower(absl::StripPrefix(name, "WORKER_PHASE_"));
}

}  // namespace

LocalWorkers::LocalWorkers(boost::asio::io_context& io, const LaunchConfig* config, AgentLog* log,
                           std::string host, WardenHandle warden, Handlers handlers)
    : io_(io),
      config_(*config),
      log_(*log),
      host_(std::move(host)),
      handlers_(std::move(handlers)),
      environment_(BaseEnvironment(config_)),
      console_(io, [this](const absl::Status& why) { log_.Say(why.message()); }),
      failures_(host_, config_.role),
      watch_(io, config, log,
             {.note = [this](const WatchdogNote& note) { handlers_.watchdog(note); },
              .stuck = [this](pid_t pid, const std::string& where) { OnStuck(pid, where); }}),
      processes_(io, std::move(warden),
                 {.started = [this](ProcessClient::WorkerId id, pid_t pid) { OnStarted(id, pid); },
                  .ended = [this](ProcessClient::WorkerId id, const ExitInfo& exit,
                                  const ResourceUse&) { OnEnded(id, exit); },
                  .warden_lost = [this](const absl::Status& why) { handlers_.broken(why); },
                  .fenced = [this] { handlers_.fenced(); },
                  .slow_start = [this](ProcessClient::WorkerId id,
                                       const LeftOver& process) { OnSlowStart(id, process); }}) {
  log_.SendTo([this](absl::string_view text) { console_.err().Write(text); });
}

absl::Status LocalWorkers::Open() {
  RETURN_IF_ERROR(CheckVirtualDevices(environment_, config_));
  ASSIGN_OR_RETURN(cpus_, WorkerCpus(config_, environment_));
  ASSIGN_OR_RETURN(LogLayout logs, LogLayout::Create(config_.log_dir, config_.run_id),
                   config_.log_dir.empty() ? "log files" : "--log-dir");
  logs_.emplace(std::move(logs));
  RETURN_IF_ERROR(watch_.Open(processes_));
  absl::StatusOr<std::unique_ptr<WorkerSocket>> socket = WorkerSocket::Open(
      io_,
      [this](const proto::WorkerReport& report) {
        if (report.has_snapshot_step()) handlers_.snapshot(Round(report.round()), report.snapshot_step());
      },
      [this](const std::string& why) { log_.Say(why); });
  if (socket.ok()) {
    reports_ = *std::move(socket);
  } else {
    log_.Say(socket.status().message());
  }
  if (LimitsOmpThreads(environment_, config_)) {
    log_.Say(
        "OMP_NUM_THREADS is not set: each worker gets 1, so that they do not crowd each other out; set it to "
        "what suits your program");
  }
  return absl::OkStatus();
}

void LocalWorkers::Start(const Assignment& assignment, const NodeNetwork& network) {
  assignment_ = assignment;
  failures_.BeginRound(assignment_);
  told_.reset();
  watch_.BeginRound();
  workers_.clear();
  outputs_.clear();
  const AttemptFiles files = NewLogFiles();
  attempt_dir_ = files.dir;
  const OutputPlans plans(config_, assignment_, files, HostNameOfSystem(), console_.warn());
  for (int i = 0; i < config_.num_local_workers; ++i) {
    const LocalRank local_rank(i);
    const std::string& error_file = files.workers[i].error_json;
    outputs_.push_back(std::make_unique<WorkerOutput>(console_, plans.For(local_rank)));
    const ProcessClient::WorkerId id = next_worker_++;
    workers_[id] = {.local_rank = local_rank, .started = Now(), .error_file = error_file};
    const std::vector<std::string> argv = ArgumentsFor(config_.program, local_rank, config_.pass_local_rank);
    const EnvVars env = WorkerEnvironment(environment_, config_, assignment_, local_rank,
                                          {.error_file = error_file,
                                           .agent_socket = reports_ ? reports_->name() : "",
                                           .timer_file = watch_.timer_file(),
                                           .network = network});
    if (log_.shows_details()) {
      log_.Detail(absl::StrCat("starting local rank ", i, ":\n",
                               WorkerCommandText(BaseEnvironment(LaunchConfig()), env, argv, cpus_[i])));
    }
    processes_.Spawn(id, {.argv = argv,
                          .file = SubstituteLocalRank(config_.program.file, local_rank),
                          .env = env,
                          .cpus = {cpus_[i].begin(), cpus_[i].end()},
                          .stdout_fd = outputs_.back()->stdout_fd(),
                          .stderr_fd = outputs_.back()->stderr_fd()});
    outputs_.back()->CloseChildEnds();
  }
  oom_watch_.emplace();  // The starts have been ordered, so they do not wait for it.
}

AttemptFiles LocalWorkers::NewLogFiles() {
  absl::StatusOr<AttemptFiles> files =
      logs_->NewAttempt(assignment_.restart_count, config_.num_local_workers);
  if (files.ok()) return *std::move(files);
  log_.Say(absl::StrCat("the workers' files cannot be made, going on without them: ",
                        std::string(files.status().message())));
  AttemptFiles none;
  none.workers.resize(static_cast<size_t>(config_.num_local_workers));
  return none;
}

void LocalWorkers::OnStarted(ProcessClient::WorkerId id, pid_t pid) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  it->second.pid = pid;
  // It was sent that behind its start, which is known only now.
  if (told_ && *told_ != SIGKILL) SaySent(*told_, pid);
  oom_watch_->Add(pid);
  watch_.Started(pid);
  handlers_.started(it->second.local_rank, pid);
}

void LocalWorkers::OnSlowStart(ProcessClient::WorkerId id, const LeftOver& process) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  it->second.pid = process.pid;
  log_.Say(absl::StrCat("local rank ", it->second.local_rank.value(), " (pid ", process.pid,
                        ") has not started after 10 s: the system is still loading ", config_.program.name,
                        " (state ", std::string(1, process.state),
                        process.kernel_wait.empty() ? "" : absl::StrCat(", waiting in ", process.kernel_wait),
                        "); does its file system answer?"));
  watch_.Started(process.pid);
}

void LocalWorkers::OnStuck(pid_t pid, const std::string& where) {
  const auto it =
      std::find_if(workers_.begin(), workers_.end(), [pid](const auto& w) { return w.second.pid == pid; });
  // Should it end one day, nobody asks any more.
  if (it != workers_.end()) OnEnded(it->first, Stuck{where});
}

void LocalWorkers::OnEnded(ProcessClient::WorkerId id, const ExitInfo& exit) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  const Worker worker = it->second;
  workers_.erase(it);
  watch_.Ended(worker.pid);
  const std::optional<proto::WorkerReport> report = ReportOf(worker.local_rank);
  std::string progress = report ? InWords(*report) : "";
  if (const std::string cause = watch_.CauseOf(worker.pid); !cause.empty()) {
    absl::StrAppend(&progress, progress.empty() ? "" : ", ", cause);
  }
  if (!Succeeded(exit)) {
    const TimePoint now = Now();
    failures_.Add({.local_rank = worker.local_rank,
                   .pid = worker.pid,
                   .exit = exit,
                   .when = now,
                   .uptime = worker.pid == 0 ? Duration::zero() : now - worker.started,
                   .step = report ? std::optional(report->step()) : std::nullopt,
                   .progress = progress,
                   .error_file = worker.error_file,
                   .told = told_});
  }
  handlers_.ended(worker.local_rank, exit, progress);
}

std::optional<proto::WorkerReport> LocalWorkers::ReportOf(LocalRank local_rank) const {
  if (reports_ == nullptr) return std::nullopt;
  return reports_->Last(assignment_.round, local_rank);
}

void LocalWorkers::FillIn(proto::Heartbeat& heartbeat) const {
  heartbeat.set_round(assignment_.round.value());
  if (reports_ == nullptr) return;
  const std::optional<proto::WorkerReport> slowest = reports_->Slowest(assignment_.round);
  if (!slowest) return;
  heartbeat.set_step(slowest->step());
  heartbeat.set_phase(PhaseOf(*slowest));
}

int64_t LocalWorkers::FurthestStep(Round round) const {
  return reports_ == nullptr ? 0 : reports_->FurthestStep(round);
}

void LocalWorkers::AskForSnapshot(Round round) {
  if (reports_ != nullptr) reports_->AskForSnapshot(round);
}

void LocalWorkers::Signal(int signo) {
  told_ = signo;
  for (const auto& [id, worker] : workers_) {
    if (worker.pid != 0) SaySent(signo, worker.pid);
  }
  processes_.SignalAll(signo);
}

void LocalWorkers::SaySent(int signo, pid_t pid) const {
  log_.Say(absl::StrCat("Sending process ", pid, " closing signal ", SignalName(signo)));
}

void LocalWorkers::Fence(std::optional<BootTime> deadline) {
  if (deadline) {
    processes_.Fence(*deadline);
  } else {
    processes_.Unfence();
  }
}

void LocalWorkers::KillAll() {
  if (!workers_.empty()) told_ = SIGKILL;
  processes_.KillAll(kKillLimit, [this](const std::vector<LeftOver>& left_over) {
    unkillable_.clear();
    for (const LeftOver& process : left_over) {
      unkillable_.push_back(ToString(process));
      log_.Say(absl::StrCat("cannot be killed, going on without it: ", ToString(process)));
    }
    // They are gone, so what they wrote is on its way at most.
    undrained_ = static_cast<int>(outputs_.size());
    for (const std::unique_ptr<WorkerOutput>& output : outputs_) {
      output->Drain(kDrainLimit, [this] {
        if (--undrained_ > 0) return;
        watch_.Gone();
        handlers_.gone(unkillable_);
      });
    }
  });
}

void LocalWorkers::CompleteFailures() {
  failures_.Complete(
      {.stderr_tail = [this](LocalRank r) { return outputs_[r.value()]->StderrTail().value_or(""); },
       .evidence_of_sigkill = [this](pid_t pid) { return oom_watch_->Evidence(pid); }});
}

void LocalWorkers::Flush(Duration limit, std::function<void()> done) {
  console_.Flush(limit, std::move(done));
}

}  // namespace ddprun
