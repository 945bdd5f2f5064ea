#include "launcher/workers/local_workers.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "boost/asio/post.hpp"
#include "launcher/agent/agent_world.h"
#include "launcher/logs/log_layout.h"
#include "launcher/process/process_tree.h"
#include "launcher/report/error_file.h"
#include "launcher/workers/output_plans.h"
#include "launcher/workers/worker_cpus.h"
#include "launcher/workers/worker_environment.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

// Time limit for forwarding the remaining output and reading error files after all writers have ended. The
// limit is reached only if a file system hangs, or if a console that accepts no output also blocks output to
// a file.
constexpr Duration kDrainLimit = seconds(2);

// Returns, for example, "after step 57 (epoch 2)".
std::string InWords(const WorkerReport& report) {
  std::string progress = absl::StrCat("after step ", report.step);
  if (!report.message.empty()) absl::StrAppend(&progress, " (", report.message, ")");
  return progress;
}

}  // namespace

LocalWorkers::LocalWorkers(boost::asio::io_context& io, const LaunchConfig* config, AgentLog* log,
                           LogDirectory* logs, std::string host, WardenHandle warden, Handlers handlers)
    : io_(io),
      config_(*config),
      log_(*log),
      host_(std::move(host)),
      handlers_(std::move(handlers)),
      environment_(BaseEnvironment(config_)),
      logs_(*logs),
      console_(io, [this](const absl::Status& why) { log_.Say(why.message()); }),
      failures_(host_, config_.role),
      gpu_watch_(io, GpuOptionsFor(config_, environment_), log, [this] { CheckGone(); }),
      heartbeats_(config->num_local_workers),
      watch_(io, config, log,
             {.note = [this](const WatchdogNote& note) { handlers_.watchdog(note); },
              .stuck = [this](pid_t pid, const std::string& where) { OnStuck(pid, where); }}),
      processes_(io, std::move(warden),
                 {.started = [this](WardenClient::WorkerId id, pid_t pid) { OnStarted(id, pid); },
                  .ended = [this](WardenClient::WorkerId id, const ExitInfo& exit,
                                  const ResourceUse&) { OnEnded(id, exit); },
                  .warden_lost = [this](const absl::Status& why) { handlers_.broken(why); },
                  .fenced = [this] { handlers_.fenced(); },
                  .slow_start = [this](WardenClient::WorkerId id,
                                       const LeftOver& process) { OnSlowStart(id, process); }}),
      notice_file_(io,
                   [this](const absl::StatusOr<int>& written) {
                     if (!written.ok()) return log_.Say(written.status().message());
                     processes_.RemoveAtEnd(*written);
                   }),
      drain_(io) {
  log_.SendTo([this](absl::string_view text) { console_.err().Write(text); });
}

void LocalWorkers::Open(std::function<void(const absl::Status&)> done) {
  if (const absl::Status devices = CheckVirtualDevices(environment_, config_); !devices.ok()) {
    return boost::asio::post(io_, [done, devices] { done(devices); });
  }
  FindWorkerCpus(io_, log_, config_, environment_, [this, done = std::move(done)](auto cpus) {
    if (!cpus.ok()) {
      return boost::asio::post(io_, [done, status = cpus.status()] { done(status); });
    }
    cpus_ = *std::move(cpus);
    gpu_watch_.Open();
    logs_.WhenOpen([this, done](const absl::Status& opened) {
      if (!opened.ok()) return done(opened);
      notice_file_.Open([this, done] { done(OpenRest()); });
    });
  });
}

absl::Status LocalWorkers::OpenRest() {
  RETURN_IF_ERROR(watch_.Open(processes_));
  absl::StatusOr<std::unique_ptr<WorkerSocket>> socket = WorkerSocket::Open(
      io_,
      [this](const WorkerReport& report) {
        handlers_.reported(report);
        if (report.snapshot_step) handlers_.snapshot(report.round, *report.snapshot_step);
      },
      [this](const std::string& why) { log_.Say(why); },
      {.asks = [this](const WorkerSurvival& survival,
                      pid_t process) { return OnAsksToSurvive(survival, process); },
       .parked =
           [this](const WorkerSurvival& survival) {
             handlers_.parked(survival.local_rank, survival.round, survival.message);
           },
       .unregistered = [this](LocalRank rank) { handlers_.survives(rank, false); }});
  if (socket.ok()) {
    reports_ = *std::move(socket);
  } else {
    log_.Say(socket.status().message());
  }
  if (LimitsOmpThreads(environment_, config_)) {
    log_.Say(
        "OMP_NUM_THREADS is not set: using 1 for each worker to avoid overloading this machine; set it to "
        "the best value for your program");
  }
  return absl::OkStatus();
}

bool LocalWorkers::OnAsksToSurvive(const WorkerSurvival& survival, pid_t process) {
  const Worker* const worker = Running(survival.local_rank);
  if (worker == nullptr) return false;
  // A process elsewhere is not killed with the worker, and the worker is not parked when that process is. Until the
  // worker's pid is known, any process of a worker counts.
  const pid_t top = worker->pid != 0 ? worker->pid : processes_.warden_pid();
  if (process != top && !DescendsFrom(process, top)) {
    if (!std::exchange(told_of_stranger_, true)) {
      log_.Say(
          absl::StrCat("process ", process, " asks to survive as local rank ", survival.local_rank.value(),
                       ", but is neither that worker nor one of its descendants: ignoring such requests"));
    }
    return false;
  }
  handlers_.survives(survival.local_rank, true);
  return true;
}

const LocalWorkers::Worker* LocalWorkers::Running(LocalRank local_rank) const {
  for (const auto& [id, worker] : workers_) {
    if (worker.local_rank == local_rank) return &worker;
  }
  return nullptr;
}

pid_t LocalWorkers::PidOf(LocalRank local_rank) const {
  const Worker* const worker = Running(local_rank);
  return worker == nullptr ? 0 : worker->pid;
}

std::vector<pid_t> LocalWorkers::Pids() const {
  std::vector<pid_t> pids;
  for (const auto& [id, worker] : workers_) {
    if (worker.pid != 0) pids.push_back(worker.pid);
  }
  return pids;
}

void LocalWorkers::Start(const Assignment& assignment, const NodeNetwork& network,
                         const std::set<LocalRank>& keep) {
  std::erase_if(workers_, [&keep](const auto& w) { return keep.count(w.second.local_rank) == 0; });
  for (auto& [id, worker] : workers_) {
    worker.earlier_report = ReportOf(worker);
    worker.started = Now();
    worker.last_signal.reset();
  }
  assignment_ = assignment;
  network_ = network;
  keep_ = keep;
  stop_asked_ = false;
  notice_file_.BeginRound();
  failures_.BeginRound(assignment_);
  watch_.BeginRound(Pids());
  outputs_.resize(config_.num_local_workers);
  for (int i = 0; i < config_.num_local_workers; ++i) {
    if (keep.count(LocalRank(i)) == 0) outputs_[i].reset();
  }
  drained_.clear();
  if (keep.empty()) filtered_stdout_ = filtered_stderr_ = nullptr;
  unread_ = 0;
  if (reports_ != nullptr) {
    reports_->BeginRound(assignment_.round, keep);
    for (const LocalRank rank : keep) reports_->Offer(rank, OfferFor(config_, assignment_, rank, network_));
  }
  attempt_dir_ = logs_.AttemptDir(assignment_.restart_count);
  const auto files =
      std::make_shared<StartFiles>(StartFiles{.restart_count = static_cast<int>(assignment_.restart_count),
                                              .filters_stdout = !config_.stdout_filters.empty(),
                                              .filters_stderr = !config_.stderr_filters.empty()});
  for (const LocalRank rank : keep) files->kept.insert(static_cast<int>(rank.value()));
  const OutputPlans plans(config_, assignment_, HostNameOfSystem());
  for (int i = 0; i < config_.num_local_workers; ++i) files->plans.push_back(plans.For(LocalRank(i)));
  ++start_;
  opening_ = true;
  logs_.OpenFiles(files, [this, files] {
    gpu_watch_.BeforeStart([this, files, start = start_] {
      if (start != start_ || !std::exchange(opening_, false)) return;  // cancelled
      StartWith(*files);
    });
  });
}

void LocalWorkers::StartWith(StartFiles& files) {
  for (const absl::Status& problem : files.problems) log_.Say(problem.message());
  const auto filtered = [this](std::unique_ptr<LogFile>& file, const std::vector<std::string>& filters) {
    if (file == nullptr) return std::shared_ptr<FilteredLog>();
    return std::make_shared<FilteredLog>(
        std::make_unique<QueuedLog>(&logs_.disk(), std::move(file), console_.warn()), filters);
  };
  if (!files.added) {
    filtered_stdout_ = filtered(files.filtered_stdout, config_.stdout_filters);
    filtered_stderr_ = filtered(files.filtered_stderr, config_.stderr_filters);
  }
  for (int i = 0; i < config_.num_local_workers; ++i) {
    const LocalRank local_rank(i);
    if (keep_.count(local_rank) > 0) continue;
    WorkerOutput::Plan& plan = files.plans[i];
    plan.filtered_stdout = filtered_stdout_;
    plan.filtered_stderr = filtered_stderr_;
    const std::string& error_file = plan.files.error_json;
    outputs_[i] = std::make_unique<WorkerOutput>(console_, logs_.disk(), plan, std::move(files.opened[i]));
    const WardenClient::WorkerId id = next_worker_++;
    workers_[id] = {.local_rank = local_rank, .started = Now(), .error_file = error_file};
    const std::vector<std::string> argv = ArgumentsFor(config_.program, local_rank, config_.pass_local_rank);
    const EnvVars env = WorkerEnvironment(environment_, config_, assignment_, local_rank,
                                          {.error_file = error_file,
                                           .agent_socket = reports_ ? reports_->name() : "",
                                           .timer_file = watch_.timer_file(),
                                           .notice_file = notice_file_.path(),
                                           .heartbeat_file = heartbeats_.path(local_rank),
                                           .network = network_});
    if (log_.shows_details()) {
      log_.Detail(absl::StrCat("starting local rank ", i, ":\n",
                               WorkerCommandText(BaseEnvironment(LaunchConfig()), env, argv, cpus_[i])));
    }
    processes_.Spawn(id, {.argv = argv,
                          .file = SubstituteLocalRank(config_.program.file, local_rank),
                          .env = env,
                          .cpus = {cpus_[i].begin(), cpus_[i].end()},
                          .ignored = SignalsIgnoredByWorkers(config_),
                          .stdout_fd = outputs_[i]->stdout_fd(),
                          .stderr_fd = outputs_[i]->stderr_fd()});
    outputs_[i]->CloseChildEnds();
  }
  // Survivors keep their counters.
  if (keep_.empty() || !oom_watch_)
    oom_watch_.emplace();  // done after the Spawn requests, so that it does not delay them
}

void LocalWorkers::CancelStart() {
  if (!std::exchange(opening_, false)) return;
  logs_.CancelOpenFiles();
  for (int i = 0; i < config_.num_local_workers; ++i) {
    if (keep_.count(LocalRank(i)) > 0) continue;
    const WardenClient::WorkerId id = next_worker_++;
    workers_[id] = {.local_rank = LocalRank(i), .started = Now()};
    boost::asio::post(
        io_, [this, id] { OnEnded(id, NeverStarted{absl::CancelledError("stopped before it started")}); });
  }
}

void LocalWorkers::OnStarted(WardenClient::WorkerId id, pid_t pid) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  it->second.pid = pid;
  // If a signal was sent before the pid was known, Signal() could not log it.
  if (const std::optional<int> sent = it->second.last_signal; sent && *sent != SIGKILL) LogSent(*sent, pid);
  oom_watch_->Add(pid);
  gpu_watch_.Started(it->second.local_rank, pid);
  watch_.Started(pid);
  handlers_.started(it->second.local_rank, pid);
}

void LocalWorkers::OnSlowStart(WardenClient::WorkerId id, const LeftOver& process) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  it->second.pid = process.pid;
  log_.Say(absl::StrCat("local rank ", it->second.local_rank.value(), " (pid ", process.pid,
                        ") has not started after 10 s: the kernel is still loading ", config_.program.name,
                        " (state ", std::string(1, process.state),
                        process.kernel_wait.empty() ? "" : absl::StrCat(", waiting in ", process.kernel_wait),
                        "): check that its file system responds"));
  watch_.Started(process.pid);
}

void LocalWorkers::OnStuck(pid_t pid, const std::string& where) {
  const auto it =
      std::find_if(workers_.begin(), workers_.end(), [pid](const auto& w) { return w.second.pid == pid; });
  // When the process ends later, OnEnded ignores its end.
  if (it != workers_.end()) OnEnded(it->first, Stuck{where});
}

void LocalWorkers::OnEnded(WardenClient::WorkerId id, const ExitInfo& exit) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  const Worker worker = it->second;
  workers_.erase(it);
  watch_.Ended(worker.pid);
  const std::optional<WorkerReport> report = ReportOf(worker);
  std::string progress = report ? InWords(*report) : "";
  if (const std::string cause = watch_.CauseOf(worker.pid); !cause.empty()) {
    absl::StrAppend(&progress, progress.empty() ? "" : ", ", cause);
  }
  if (!Succeeded(exit)) {
    const TimePoint now = Now();
    // A scheduler may send the signal of a notice to the workers itself.
    std::optional<int> last_signal = worker.last_signal;
    if (stop_asked_ && !last_signal) last_signal = NoticeBehind(exit, config_);
    const size_t failure =
        failures_.Add({.local_rank = worker.local_rank,
                       .pid = worker.pid,
                       .exit = exit,
                       .failed_at = now,
                       .uptime = worker.pid == 0 ? Duration::zero() : now - worker.started,
                       .step = report ? std::optional(report->step) : std::nullopt},
                      {.time = absl::Now(), .progress = progress, .last_signal = last_signal});
    if (!worker.error_file.empty()) ReadErrorFile(failure, worker.error_file);
    gpu_watch_.Failed();
  }
  handlers_.ended(worker.local_rank, exit);
}

void LocalWorkers::ReadErrorFile(size_t failure, const std::string& path) {
  ++unread_;
  const auto error = std::make_shared<std::optional<WorkerError>>();
  logs_.disk().Do([path, error] { *error = ddprun::ReadErrorFile(path); },
                  [this, failure, path, error, start = start_] {
                    if (start != start_) return;
                    if (*error) failures_.AddError(failure, *std::move(*error), path);
                    --unread_;
                    CheckGone();
                  });
}

std::optional<WorkerReport> LocalWorkers::ReportOf(const Worker& worker) const {
  if (reports_ == nullptr) return std::nullopt;
  const std::optional<WorkerReport> report = reports_->Last(assignment_.round, worker.local_rank);
  return report ? report : worker.earlier_report;
}

void LocalWorkers::FillIn(proto::Heartbeat& heartbeat) const {
  heartbeat.set_round(assignment_.round.value());
  if (reports_ == nullptr) return;
  const std::optional<WorkerReport> slowest = reports_->Slowest(assignment_.round);
  if (!slowest) return;
  heartbeat.set_step(slowest->step);
  heartbeat.set_phase(std::string(NameOf(slowest->phase)));
}

std::optional<int64_t> LocalWorkers::SlowestStep(Round round) const {
  const std::optional<WorkerReport> slowest = reports_ == nullptr ? std::nullopt : reports_->Slowest(round);
  return slowest ? std::optional(slowest->step) : std::nullopt;
}

int64_t LocalWorkers::FurthestStep(Round round) const {
  return reports_ == nullptr ? 0 : reports_->FurthestStep(round);
}

bool LocalWorkers::SayFinished(Round round) const {
  if (reports_ == nullptr) return false;
  for (int i = 0; i < config_.num_local_workers; ++i) {
    const std::optional<WorkerReport> last = reports_->Last(round, LocalRank(i));
    if (!last || last->phase != WorkerPhase::kFinishing) return false;
  }
  return true;
}

void LocalWorkers::AskForSnapshot(Round round, const std::optional<WorkerStop>& stop) {
  if (reports_ != nullptr) reports_->AskForSnapshot(round, stop);
  if (!stop) return;
  notice_file_.Write(*stop);
  if (std::exchange(stop_asked_, true) || config_.preempt_signals.empty()) return;
  const int signo = config_.preempt_signals[0].signo;
  for (const auto& [id, worker] : workers_) {
    if (ReportOf(worker)) continue;
    log_.Say(absl::StrCat("Sending ", SignalName(signo), " to process ", worker.pid,
                          ", which does not report over the socket"));
    processes_.Signal(id, signo);
  }
}

void LocalWorkers::Signal(int signo, const std::set<LocalRank>& spare) {
  CancelStart();
  for (auto& [id, worker] : workers_) {
    if (spare.count(worker.local_rank) > 0) continue;
    worker.last_signal = signo;
    if (worker.pid != 0) LogSent(signo, worker.pid);
    if (!spare.empty()) processes_.Signal(id, signo);
  }
  if (spare.empty()) processes_.SignalAll(signo);
}

void LocalWorkers::TellSurvivors(const std::set<LocalRank>& who, const AgentRequest& levels) {
  if (reports_ == nullptr) return;
  for (const LocalRank rank : who) reports_->SetLevels(rank, levels);
}

void LocalWorkers::RecordParked(LocalRank local_rank, const std::string& why) {
  const Worker* const worker = Running(local_rank);
  const TimePoint now = Now();
  const std::optional<WorkerReport> report =
      worker == nullptr ? std::optional<WorkerReport>() : ReportOf(*worker);
  failures_.AddParked({.local_rank = local_rank,
                       .pid = worker == nullptr ? 0 : worker->pid,
                       .exit = Exited{1},
                       .failed_at = now,
                       .uptime = worker == nullptr ? Duration::zero() : now - worker->started,
                       .step = report ? std::optional(report->step) : std::nullopt},
                      absl::Now(), why);
}

void LocalWorkers::LogSent(int signo, pid_t pid) const {
  log_.Say(absl::StrCat("Sending process ", pid, " closing signal ", SignalName(signo)));
}

void LocalWorkers::Fence(std::optional<BootTime> deadline) {
  if (deadline) {
    processes_.Fence(*deadline);
  } else {
    processes_.Unfence();
  }
}

void LocalWorkers::KillAll(const std::set<LocalRank>& spare) {
  CancelStart();
  std::vector<WardenClient::WorkerId> spared;
  for (auto& [id, worker] : workers_) {
    if (spare.count(worker.local_rank) > 0) {
      spared.push_back(id);
    } else {
      worker.last_signal = SIGKILL;
    }
  }
  const auto killed = [this, spare](const std::vector<LeftOver>& left_over) {
    unkillable_.clear();
    for (const LeftOver& process : left_over) {
      unkillable_.push_back(ToString(process));
      log_.Say(absl::StrCat("continuing although a process cannot be killed: ", ToString(process)));
    }
    // All writers have ended, except the workers to spare; only the others' last output may still be in flight.
    killed_ = true;
    std::vector<WorkerOutput*> ended;
    for (int i = 0; i < static_cast<int>(outputs_.size()); ++i) {
      if (outputs_[i] == nullptr || spare.count(LocalRank(i)) > 0) continue;
      if (drained_.insert(LocalRank(i)).second) ended.push_back(outputs_[i].get());
    }
    undrained_ = static_cast<int>(ended.size());
    for (WorkerOutput* const output : ended) {
      output->Drain(kDrainLimit, [this] {
        --undrained_;
        CheckGone();
      });
    }
    drain_.expires_after(kDrainLimit);
    drain_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      unread_ = 0;
      CheckGone();
    });
    CheckGone();
  };
  processes_.KillAll(kKillLimit, killed, spared);
}

void LocalWorkers::CheckGone() {
  if (!killed_ || undrained_ > 0 || unread_ > 0 || gpu_watch_.reading()) return;
  killed_ = false;
  drain_.cancel();
  watch_.Gone(Pids());
  handlers_.gone(unkillable_);
}

void LocalWorkers::CompleteFailures() {
  failures_.Complete({.stderr_tail =
                          [this](LocalRank r) {
                            const auto& output = outputs_[r.value()];
                            return output == nullptr ? "" : output->StderrTail().value_or("");
                          },
                      .tail_has_stdout =
                          [this](LocalRank r) {
                            const auto& output = outputs_[r.value()];
                            return output != nullptr && output->tail_has_stdout();
                          },
                      .evidence_of_sigkill = [this](pid_t pid) { return oom_watch_->Evidence(pid); },
                      .evidence_of_gpus = [this](const Failure& f) { return gpu_watch_.Evidence(f); }});
}

void LocalWorkers::WriteFile(const std::string& path, const std::string& text,
                             std::function<void(const absl::Status&)> done) {
  const auto written = std::make_shared<absl::Status>();
  logs_.disk().Do([path, text, written] { *written = WriteNewFile(path, text); },
                  [written, done = std::move(done)] { done(*written); }, text.size());
}

void LocalWorkers::Flush(Duration limit, std::function<void()> done) {
  processes_.EndWarden();
  logs_.Flush(limit, [this, limit, done = std::move(done)] { console_.Flush(limit, done); });
}

}  // namespace ddprun
