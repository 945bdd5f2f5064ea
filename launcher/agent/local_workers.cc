#include "launcher/agent/local_workers.h"

#include <csignal>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "launcher/agent/worker_environment.h"

namespace ddprun {
namespace {

// For output that is on its way when nobody writes any more: longer only if a file system or terminal hangs.
constexpr Duration kDrainLimit = seconds(2);

// "after step 57 (epoch 2)"
std::string InWords(const proto::WorkerReport& report) {
  std::string progress = absl::StrCat("after step ", report.step());
  if (!report.message().empty()) absl::StrAppend(&progress, " (", report.message(), ")");
  return progress;
}

// "training"; empty if it did not say.
std::string PhaseOf(const proto::WorkerReport& report) {
  if (report.phase() == proto::WORKER_PHASE_UNSPECIFIED || !proto::WorkerPhase_IsValid(report.phase()))
    return "";
  const std::string name = proto::WorkerPhase_Name(report.phase());
  return absl::AsciiStrToLower(absl::StripPrefix(name, "WORKER_PHASE_"));
}

}  // namespace

LocalWorkers::LocalWorkers(boost::asio::io_context& io, const LaunchConfig* config, const AgentLog* log,
                           std::string host, WardenHandle warden, Handlers handlers)
    : io_(io),
      config_(*config),
      log_(*log),
      host_(std::move(host)),
      handlers_(std::move(handlers)),
      environment_(CurrentEnvironment()),
      console_(io, [this](const absl::Status& why) { log_.Say(why.message()); }),
      failures_(host_, config_.role),
      processes_(io, std::move(warden),
                 {.started = [this](ProcessClient::WorkerId id, pid_t pid) { OnStarted(id, pid); },
                  .ended = [this](ProcessClient::WorkerId id, const ExitInfo& exit,
                                  const ResourceUse&) { OnEnded(id, exit); },
                  .warden_lost = [this](const absl::Status& why) { handlers_.broken(why); },
                  .fenced = [this] { handlers_.fenced(); }}) {}

absl::Status LocalWorkers::Open() {
  ASSIGN_OR_RETURN(LogLayout logs, LogLayout::Create(config_.log_dir, config_.run_id), "--log-dir");
  logs_.emplace(std::move(logs));
  absl::StatusOr<std::unique_ptr<WorkerSocket>> socket =
      WorkerSocket::Open(io_, [this](const proto::WorkerReport& report) {
        if (report.has_snapshot_step()) handlers_.snapshot(Round(report.round()), report.snapshot_step());
      });
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

void LocalWorkers::Start(const Assignment& assignment) {
  assignment_ = assignment;
  failures_.BeginRound(assignment_);
  told_.reset();
  workers_.clear();
  outputs_.clear();
  const std::vector<WorkerFiles> files = NewLogFiles();
  attempt_dir_ = std::filesystem::path(files[0].error_json).parent_path().parent_path().string();
  for (int i = 0; i < config_.num_local_workers; ++i) {
    const LocalRank local_rank(i);
    outputs_.push_back(std::make_unique<WorkerOutput>(
        console_, WorkerOutput::Plan{.redirects = config_.redirects.For(local_rank),
                                     .tee = config_.tee.For(local_rank),
                                     .files = files[i],
                                     .prefix = absl::StrCat("[", config_.role, i, "]:")}));
    const ProcessClient::WorkerId id = next_worker_++;
    workers_[id] = {.local_rank = local_rank, .started = Now(), .error_file = files[i].error_json};
    processes_.Spawn(id, {.argv = ArgumentsFor(config_.program, local_rank),
                          .env = WorkerEnvironment(environment_, config_, assignment_, local_rank,
                                                   files[i].error_json, reports_ ? reports_->name() : ""),
                          .stdout_fd = outputs_.back()->stdout_fd(),
                          .stderr_fd = outputs_.back()->stderr_fd()});
    outputs_.back()->CloseChildEnds();
  }
  oom_watch_.emplace();  // The starts have been ordered, so they do not wait for it.
}

std::vector<WorkerFiles> LocalWorkers::NewLogFiles() {
  absl::StatusOr<std::vector<WorkerFiles>> files =
      logs_->NewAttempt(assignment_.restart_count, config_.num_local_workers);
  if (files.ok()) return *std::move(files);
  log_.Say(absl::StrCat("the workers' files cannot be made, going on without them: ",
                        std::string(files.status().message())));
  return std::vector<WorkerFiles>(config_.num_local_workers);
}

void LocalWorkers::OnStarted(ProcessClient::WorkerId id, pid_t pid) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  it->second.pid = pid;
  oom_watch_->Add(pid);
}

void LocalWorkers::OnEnded(ProcessClient::WorkerId id, const ExitInfo& exit) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  const Worker worker = it->second;
  workers_.erase(it);
  const std::optional<proto::WorkerReport> report = ReportOf(worker.local_rank);
  const std::string progress = report ? InWords(*report) : "";
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
  processes_.SignalAll(signo);
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
    for (const LeftOver& process : left_over) {
      log_.Say(absl::StrCat("cannot be killed, going on without it: ", ToString(process)));
    }
    // They are gone, so what they wrote is on its way at most.
    undrained_ = static_cast<int>(outputs_.size());
    for (const std::unique_ptr<WorkerOutput>& output : outputs_) {
      output->Drain(kDrainLimit, [this] {
        if (--undrained_ == 0) handlers_.gone();
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
