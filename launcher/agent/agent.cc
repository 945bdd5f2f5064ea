#include "launcher/agent/agent.h"

#include <unistd.h>

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_info.h"
#include "base/uuid.h"
#include "base/wake_timer.h"
#include "boost/asio/post.hpp"
#include "launcher/agent/background_task.h"
#include "launcher/report/failure_record.h"
#include "launcher/report/own_error.h"
#include "net/local_host.h"
#include "proto/value_codec.h"
#include "rendezvous/client/gone_line.h"

namespace ddprun {
namespace {

// Time limit for flushing output to a slow terminal.
constexpr Duration kFlushLimit = seconds(5);
// Time limit for writing the launcher's own error file.
constexpr Duration kOwnErrorLimit = seconds(2);
// Time limit for looking up the full name of this host, which only reports and events need.
constexpr Duration kNameLimit = milliseconds(300);
// Time limit for reading the last output of workers that have exited; equal to kDrainLimit in
// local_workers.cc.
constexpr Duration kOutputLimit = seconds(2);

// Returns a node id that is unique for each join.
std::string NodeIdOf(const std::string& host) {
  return absl::StrCat(host, "/", getpid(), "/",
                      absl::Hex(std::chrono::steady_clock::now().time_since_epoch().count() & 0xffffffff));
}

}  // namespace

Agent::Agent(boost::asio::io_context& io, Parts parts, std::function<void(int)> finished)
    : io_(io),
      config_(*parts.config),
      log_(*parts.log),
      stores_(*parts.stores),
      host_(parts.host),
      relink_(std::move(parts.relink)),
      open_line_(std::move(parts.open_line)),
      line_of_round_(parts.line_of_round),
      gone_nodes_(std::move(parts.gone_nodes)),
      observers_(std::move(parts.observers)),
      network_(std::move(parts.network)),
      finished_(std::move(finished)),
      workers_(io, parts.config, parts.log, parts.log_directory, parts.host, std::move(parts.warden),
               {.started =
                    [this](LocalRank rank, pid_t pid) {
                      Observe([&](AgentObserver& o) { o.OnWorkerStarted(rank, pid, Now()); });
                    },
                .ended =
                    [this](LocalRank rank, const ExitInfo& exit) {
                      driver_.Step(WorkerEnded{rank, exit});
                    },
                .survives =
                    [this](LocalRank rank, bool asks) {
                      driver_.Step(WorkerSurvives{rank, asks});
                    },
                .parked =
                    [this](LocalRank rank, Round round, const std::string& why) {
                      driver_.Step(WorkerParked{rank, round, why});
                    },
                .gone =
                    [this](const std::vector<std::string>& unkillable) {
                      Observe([&](AgentObserver& o) { o.OnWorkersGone(unkillable, Now()); });
                      driver_.Step(WorkersGone{unkillable});
                    },
                .reported =
                    [this](const WorkerReport& report) {
                      driver_.Reported(report.round, report.local_rank, report.step, report.phase);
                    },
                .snapshot =
                    [this](Round round, int64_t step) {
                      driver_.Step(SnapshotReported{round, step});
                    },
                .watchdog =
                    [this](const WatchdogNote& note) {
                      Observe([&](AgentObserver& o) { o.OnWatchdog(note, Now()); });
                    },
                .fenced = [this] { driver_.FenceFired(); },
                .broken = [this](const absl::Status& why) { Break(why); }}),
      display_(parts.log, config_.program.name,
               [this](const std::string& path, const std::string& text, auto done) {
                 workers_.WriteFile(path, text, std::move(done));
               }),
      driver_(
          {.config = parts.config,
           .world = this,
           .timer = std::make_unique<AsioWakeTimer>(io),
           .node = {.host = parts.host,
                    .address = parts.address,
                    .first_last_call = parts.first_last_call,
                    .last_call = parts.last_call,
                    .stop_timeout = config_.shutdown_timeout + kKillLimit + kOutputLimit + config_.rdzv.lease,
                    .coordinator_port = parts.coordinator_port},
           .leased = parts.leased,
           .seek_limit = parts.seek_limit}) {
  if (!parts.counts_down) return;
  countdown_.emplace(std::make_unique<AsioWakeTimer>(io), [this](Duration left) {
    log_.Say(absl::StrCat("the workers start in ", left / seconds(1), " s at the latest"));
  });
}

void Agent::Start(std::unique_ptr<CoordinatorLink> link) {
  // Each event contains the host name.
  if (config_.event_handler != EventHandler::kNull) LookUpHostName();
  const auto later = std::make_shared<std::unique_ptr<CoordinatorLink>>(std::move(link));
  workers_.Open([this, later](const absl::Status& ready) {
    if (finish_) return;  // The agent has already ended, for example because of a signal.
    if (!ready.ok()) return driver_.Step(AgentBroken{ready, EndReason::kRejected});
    driver_.Join(std::move(*later));
  });
}

void Agent::OnSignal(int signo) {
  if (!signo_) signo_ = signo;
  driver_.Step(SignalReceived{signo});
}
void Agent::OnNotice(const PreemptSignal& signal) {
  driver_.Step(NoticeReceived{signal.left, absl::StrCat("received ", SignalName(signal.signo))});
}
void Agent::Break(const absl::Status& why) { driver_.Step(AgentBroken{why}); }

NodeIdentity Agent::NewIdentity() {
  self_ = {NodeIdOf(host_), RandomUuid()};
  return self_;
}

void Agent::StartWorkers(const Assignment& a, const std::set<LocalRank>& keep) {
  if (countdown_) countdown_->Stop();
  if (a.group_rank != GroupRank(0)) stores_.Withdraw();
  log_.Event("round_started", {{"round", absl::StrCat(a.round.value())},
                               {"group_rank", absl::StrCat(a.group_rank.value())},
                               {"world_size", absl::StrCat(a.world_size)},
                               {"restart_count", absl::StrCat(a.restart_count)},
                               {"master", absl::StrCat(a.master_addr, ":", a.master_port)}});
  stopping_ = false;
  Observe([&](AgentObserver& o) { o.OnRound(a, Now()); });
  for (const LocalRank rank : keep) {
    Observe([&](AgentObserver& o) { o.OnWorkerKept(rank, workers_.PidOf(rank), Now()); });
  }
  workers_.Start(a, network_ ? network_() : NodeNetwork(), keep);
  if (line_of_round_) OpenLine();
  display_.BeginRound(a.round, a.group_world_size > 1, workers_.attempt_dir());
}

void Agent::SignalWorkers(int signo, const std::set<LocalRank>& spare) {
  ObserveStopping();
  workers_.Signal(signo, spare);
}

void Agent::KillWorkers(const std::set<LocalRank>& spare) {
  if (driver_.machine().alive() > static_cast<int>(spare.size())) ObserveStopping();
  workers_.KillAll(spare);
}

void Agent::TellSurvivors(const ddprun::TellSurvivors& what) {
  if (what.round_over) ObserveStopping();
  workers_.TellSurvivors(what.who, {.round = what.round,
                                    .may_survive = true,
                                    .round_over = what.round_over,
                                    .no_round_follows = what.no_round_follows});
}

void Agent::RecordParked(LocalRank local_rank, const std::string& why) {
  workers_.RecordParked(local_rank, why);
}

void Agent::ObserveStopping() {
  if (std::exchange(stopping_, true)) return;
  Observe([](AgentObserver& o) { o.OnStopping(Now()); });
}

void Agent::OnWelcome(const NodeIdentity& /*node*/) { OpenLine(); }

void Agent::OpenLine() {
  if (!open_line_) return;
  open_line_([this, node = self_](int fd) {
    if (node.id != self_.id) return;  // The node has since rejoined.
    const absl::Status kept = workers_.SayWhenDead(fd, GoneMessage(config_.run_id, node.id, node.gone_token));
    if (!kept.ok()) log_.Event("no_last_words", {{"reason", kept.message()}});
  });
}

void Agent::OnWaiting() {
  Observe([](AgentObserver& o) { o.OnWaiting(Now()); });
}

void Agent::OnWaitingFor(const std::string& text, Duration start_in) {
  log_.Say(text);
  if (!countdown_) return;
  if (start_in > Duration::zero()) {
    countdown_->Start(start_in);
  } else {
    countdown_->Stop();
  }
}

void Agent::OnFailure() {
  Observe([](AgentObserver& o) { o.OnFailure(Now()); });
  // The failure report needs the full host name.
  if (full_host_.empty()) boost::asio::post(io_, [this] { LookUpHostName(); });
}

void Agent::OnSeeking() {
  if (countdown_) countdown_->Stop();
  workers_.SayNothingWhenDead();
  // The connection is closed, so the coordinator sends no more reports on it.
  if (!looking_up_) display_.ShowAll(HostName());
}

void Agent::OnReport(const proto::JobReport& report) {
  display_.KeepJob(DecodeReport(report, Now()));
  ShowLater();
}

void Agent::OnDismissed() {
  if (!looking_up_) display_.Show(HostName());  // No next round is about to start.
}

void Agent::OnRefused(const std::string& why) { log_.Event("refused", {{"reason", why}}); }

void Agent::OnStep(const AgentMachine& machine) {
  Observe([&](AgentObserver& o) { o.OnState(machine.state(), machine.round(), machine.alive(), Now()); });
}

void Agent::ReportFailures() {
  if (workers_.failures().empty()) return;
  workers_.CompleteFailures();
  std::vector<FailureRecord> failures = workers_.failures().records();
  // torchrun's report is about workers that have ended.
  std::erase_if(failures, [](const FailureRecord& record) { return record.failure.parked; });
  if (failures.empty()) return;
  const Failure& cause = failures[RootCause(failures)].failure;
  log_.Say(absl::StrCat("failed (exitcode: ", TorchExitCode(cause.exit),
                        ") local_rank: ", cause.local_rank.value(), " (pid: ", cause.pid,
                        ") of binary: ", config_.program.argv.empty() ? "" : config_.program.argv[0]));
  display_.KeepNode(std::move(failures));
  ShowLater();
}

// Shows the reports in a posted handler, so that pending handlers, which may start the next round, run first.
void Agent::ShowLater() {
  boost::asio::post(io_, [this] {
    if (!looking_up_) display_.Show(HostName());
  });
}

void Agent::LookUpHostName() {
  if (looking_up_ || !full_host_.empty()) return;
  looking_up_ = true;
  ComputeInBackground<std::string>(io_, kNameLimit, LocalHostName, [this](std::optional<std::string> name) {
    looking_up_ = false;
    full_host_ = name.value_or(host_);
    Observe([this](AgentObserver& o) { o.OnHostName(full_host_); });
    display_.Show(full_host_);
    if (finish_) End();
  });
}

void Agent::LeaveOwnError(std::function<void()> done) {
  const EndReason reason = finish_->reason;
  if (config_.own_error_file.empty() || reason == EndReason::kSucceeded || reason == EndReason::kDrained)
    return boost::asio::post(io_, std::move(done));
  std::optional<FailureRecord> cause;
  const std::vector<FailureRecord>& failures = workers_.failures().records();
  if (reason == EndReason::kJobFailed && !failures.empty()) cause = failures[RootCause(failures)];
  const bool signaled = reason == EndReason::kInterrupted || reason == EndReason::kTerminated;
  using Lines = std::vector<std::string>;
  const auto leave = [path = config_.own_error_file, reason, why = finish_->why, cause, signaled,
                      signo = signo_.value_or(0), now = std::time(nullptr)] {
    Lines said;
    const OwnErrorFile file(path, [&said](const std::string& text) { said.push_back(text); });
    if (signaled) {
      file.LeaveSignal(signo, now);
    } else if (cause) {
      file.LeaveCause(*cause);
    } else {
      file.LeaveReason(reason, why, now);
    }
    return said;
  };
  ComputeInBackground<Lines>(io_, kOwnErrorLimit, leave,
                             [this, done = std::move(done)](std::optional<Lines> said) {
                               if (!said) {
                                 said = {absl::StrCat("cannot write the error to ", config_.own_error_file,
                                                      ": its file system does not answer")};
                               }
                               for (const std::string& line : *said) log_.Say(line);
                               done();
                             });
}

void Agent::Say(const std::string& text) { log_.Say(text); }

void Agent::OnFinish(const Finish& finish) {
  if (countdown_) countdown_->Stop();
  finish_ = finish;
  if (!looking_up_) End();
}

void Agent::End() {
  display_.ShowAll(HostName());
  LeaveOwnError([this] {
    const AgentEnd end = {
        .reason = finish_->reason, .why = finish_->why, .failures = workers_.failures().records()};
    Observe([&](AgentObserver& o) { o.OnEnd(end, Now()); });
    workers_.Flush(kFlushLimit, [this] { finished_(finish_->exit_code); });
  });
}

}  // namespace ddprun
