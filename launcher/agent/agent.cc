#include "launcher/agent/agent.h"

#include <unistd.h>

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/dismissal.h"
#include "base/uuid.h"
#include "boost/asio/post.hpp"
#include "launcher/agent/aside.h"
#include "launcher/agent/report_message.h"
#include "launcher/process/exit_info.h"
#include "launcher/report/failure_record.h"
#include "launcher/report/local_host.h"
#include "launcher/report/own_error.h"
#include "rendezvous/client/gone_line.h"

namespace ddprun {
namespace {

// For a terminal that takes its time.
constexpr Duration kFlushLimit = seconds(5);
// For the file system of the launcher's own error file.
constexpr Duration kOwnErrorLimit = seconds(2);
// For the full name of this host, which only a report wants.
constexpr Duration kNameLimit = milliseconds(300);

// For the last output of workers that have ended; local_workers.cc waits no longer for it.
constexpr Duration kOutputLimit = seconds(2);

// Unique for this life of this agent.
std::string NodeIdOf(const std::string& host) {
  return absl::StrCat(host, "/", getpid(), "/",
                      absl::Hex(std::chrono::steady_clock::now().time_since_epoch().count() & 0xffffffff));
}

Assignment FromStart(const proto::Start& start) {
  return {.round = Round(start.round()),
          .group_rank = GroupRank(start.group_rank()),
          .group_world_size = start.group_world_size(),
          .first_rank = Rank(start.first_rank()),
          .world_size = start.world_size(),
          .first_role_rank = start.first_role_rank(),
          .role_world_size = start.role_world_size(),
          .restart_count = start.restart_count(),
          .master_addr = start.master_addr(),
          .master_port = start.master_port()};
}

// A reason that this build does not know is none to be glad of.
Dismissal ReasonOf(const proto::Dismiss& dismiss) {
  switch (dismiss.reason()) {
    case proto::DISMISS_REASON_SUCCEEDED:
      return Dismissal::kSucceeded;
    case proto::DISMISS_REASON_FAILED:
      return Dismissal::kFailed;
    case proto::DISMISS_REASON_JOIN_TIMEOUT:
      return Dismissal::kJoinTimeout;
    case proto::DISMISS_REASON_EXPELLED:
      return Dismissal::kExpelled;
    case proto::DISMISS_REASON_REJECTED:
      return Dismissal::kRejected;
    case proto::DISMISS_REASON_STOPPED:
      return Dismissal::kStopped;
    case proto::DISMISS_REASON_DRAINED:
      return Dismissal::kDrained;
    case proto::DISMISS_REASON_COORDINATOR_ENDED:
      return Dismissal::kCoordinatorEnded;
    default:
      return Dismissal::kFailed;
  }
}

}  // namespace

Agent::Agent(boost::asio::io_context& io, Parts parts, std::function<void(int)> finished)
    : io_(io),
      config_(*parts.config),
      log_(*parts.log),
      stores_(*parts.stores),
      node_{.host = parts.host,
            .address = parts.address,
            .first_last_call = parts.first_last_call,
            .last_call = parts.last_call,
            .stop_timeout = config_.shutdown_timeout + kKillLimit + kOutputLimit + config_.rdzv.lease},
      relink_(std::move(parts.relink)),
      open_line_(std::move(parts.open_line)),
      observers_(std::move(parts.observers)),
      network_(std::move(parts.network)),
      finished_(std::move(finished)),
      machine_({.nproc = config_.num_local_workers,
                .host = parts.host,
                .grace = config_.shutdown_timeout,
                .lease = config_.rdzv.lease,
                .exit_codes = config_.exit_codes}),
      workers_(io, parts.config, parts.log, parts.host, std::move(parts.warden),
               {.started =
                    [this](LocalRank rank, pid_t pid) {
                      Observe([&](AgentObserver& o) { o.OnWorkerStarted(rank, pid, Now()); });
                    },
                .ended =
                    [this](LocalRank rank, const ExitInfo& exit, const std::string& progress) {
                      Step(WorkerEnded{rank, exit, progress});
                    },
                .gone =
                    [this](const std::vector<std::string>& unkillable) {
                      fence_.WorkersGone();
                      Observe([&](AgentObserver& o) { o.OnWorkersGone(unkillable, Now()); });
                      Step(WorkersGone{unkillable});
                    },
                .snapshot =
                    [this](Round round, int64_t step) {
                      Step(SnapshotReported{round, step});
                    },
                .watchdog =
                    [this](const WatchdogNote& note) {
                      Observe([&](AgentObserver& o) { o.OnWatchdog(note, Now()); });
                    },
                .fenced = [this] { Step(Fenced{}); },
                // The job is left to the others.
                .broken = [this](const absl::Status& why) { Break(why); }}),
      fence_([this, leased = parts.leased](std::optional<BootTime> deadline) {
        if (leased) workers_.Fence(deadline);
      }),
      display_(parts.log, config_.program.name,
               [this](const std::string& path, const std::string& text, auto done) {
                 workers_.WriteFile(path, text, std::move(done));
               }),
      timer_(io) {}

void Agent::Start(std::unique_ptr<CoordinatorLink> link) {
  // The link comes later: there is nobody to say goodbye to.
  // Each event has the name in it.
  if (config_.event_handler != EventHandler::kNull) LookUpHostName();
  const auto later = std::make_shared<std::unique_ptr<CoordinatorLink>>(std::move(link));
  workers_.Open([this, later](const absl::Status& ready) {
    if (finish_) return;  // A signal was faster.
    if (!ready.ok()) return Step(AgentBroken{ready, EndReason::kRejected});
    JoinBy(std::move(*later));
  });
}

void Agent::JoinBy(std::unique_ptr<CoordinatorLink> link) {
  const absl::StatusOr<int> port = stores_.Offer();
  if (!port.ok()) return Break(port.status());
  node_.previous_id = std::exchange(node_.id, NodeIdOf(node_.host));
  node_.previous_token = std::exchange(node_.gone_token, RandomUuid());
  node_.store_port = *port;
  link_ = std::move(link);
  link_->Start(
      {.on_open =
           [this] {
             fence_.Joined(config_.rdzv.lease, BootClock::now());
             link_->Send(JoinMessage(config_, node_));
           },
       .on_message = [this](const proto::CoordinatorMessage& m) { OnMessage(m); },
       .on_lost = [this](const absl::Status& why) { Step(CoordinatorLost{std::string(why.message())}); },
       .heartbeat =
           [this](proto::Heartbeat& heartbeat) {
             fence_.BeforeSign(Now(), BootClock::now());
             workers_.FillIn(heartbeat);
           },
       .on_answered = [this](TimePoint sent) { fence_.Answered(sent); },
       .heartbeat_interval = config_.rdzv.lease / 4});
  Observe([](AgentObserver& o) { o.OnWaiting(Now()); });
}

void Agent::PrepareLastWords() {
  if (!open_line_) return;
  open_line_([this, node = node_.id](int fd) {
    if (node != node_.id) return;  // It has joined again meanwhile.
    const absl::Status kept = workers_.SayWhenDead(fd, GoneMessage(config_.run_id, node, node_.gone_token));
    if (!kept.ok()) log_.Event("no_last_words", {{"reason", kept.message()}});
  });
}

void Agent::OnSignal(int signo) {
  if (!signo_) signo_ = signo;
  Step(SignalReceived{signo});
}
void Agent::Break(const absl::Status& why) { Step(AgentBroken{why}); }

void Agent::OnMessage(const proto::CoordinatorMessage& message) {
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kHeard:
      return;  // the link's business
    case proto::CoordinatorMessage::kWelcome:
      fence_.LeaseFrom(milliseconds(message.welcome().heartbeat_ms()));
      PrepareLastWords();
      return Step(Rejoined{});  // the first time as well, when it is no news
    case proto::CoordinatorMessage::kTakeSnapshot: {
      const Round round(message.take_snapshot().round());
      return Step(SnapshotWanted{round, message.take_snapshot().reason(), workers_.FurthestStep(round)});
    }
    case proto::CoordinatorMessage::kReport:
      display_.KeepJob(PageOf(message.report()));
      return ShowLater();
    case proto::CoordinatorMessage::kWaiting:
      return log_.Say(message.waiting().text());
    case proto::CoordinatorMessage::kStart:
      return Step(RoundStarted{FromStart(message.start()), message.start().reason()});
    case proto::CoordinatorMessage::kStop:
      return Step(RoundStopped{Round(message.stop().round()), message.stop().reason()});
    case proto::CoordinatorMessage::kDismiss:
      if (!looking_up_) display_.Show(HostName());  // No round waits for it any more.
      if (EndsTheJob(ReasonOf(message.dismiss()))) {
        fence_.JobOver(BootClock::now() + config_.shutdown_timeout + kKillLimit);
      }
      return Step(Dismissed{ReasonOf(message.dismiss()), message.dismiss().message()});
    case proto::CoordinatorMessage::kRefuse:
      return log_.Event("refused", {{"reason", message.refuse().message()}});
    case proto::CoordinatorMessage::KIND_NOT_SET:
      return log_.Say("the coordinator sent a message of no known kind; it is ignored");
  }
}

void Agent::Step(const AgentEvent& event) {
  const AgentMachine::State before = machine_.state();
  for (const AgentEffect& effect : machine_.Step(event, Now())) {
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
  Observe(
      [this](AgentObserver& o) { o.OnState(machine_.state(), machine_.round(), machine_.alive(), Now()); });
  // The deadline can change within a state only when the node seeks.
  if (machine_.state() != before || before == AgentMachine::State::kSeeking) SetTimer();
}

void Agent::SetTimer() {
  const std::optional<TimePoint> next = machine_.NextDeadline();
  if (next == timer_at_) return;
  timer_at_ = next;
  timer_.cancel();
  if (!next) return;
  timer_.expires_at(*next);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    timer_at_.reset();
    Step(AgentTick{});
    SetTimer();
  });
}

void Agent::Do(const StartWorkers& e) {
  const Assignment& a = e.assignment;
  if (a.group_rank != GroupRank(0)) stores_.Withdraw();
  log_.Event("round_started", {{"round", absl::StrCat(a.round.value())},
                               {"group_rank", absl::StrCat(a.group_rank.value())},
                               {"world_size", absl::StrCat(a.world_size)},
                               {"restart_count", absl::StrCat(a.restart_count)},
                               {"master", absl::StrCat(a.master_addr, ":", a.master_port)}});
  stopping_ = false;
  Observe([&](AgentObserver& o) { o.OnRound(a, Now()); });
  fence_.WorkersStart();
  workers_.Start(a, network_ ? network_() : NodeNetwork());
  display_.BeginRound(a.round, a.group_world_size > 1, workers_.attempt_dir());
}

void Agent::Do(const SignalWorkers& e) {
  ObserveStopping();
  workers_.Signal(e.signo);
}

void Agent::Do(const KillWorkers&) {
  if (machine_.alive() > 0) ObserveStopping();
  workers_.KillAll();
}

void Agent::ObserveStopping() {
  if (std::exchange(stopping_, true)) return;
  Observe([](AgentObserver& o) { o.OnStopping(Now()); });
}

void Agent::Do(const AskForSnapshot& e) { workers_.AskForSnapshot(e.round); }

void Agent::Do(const SendWorkersFailed& e) {
  Observe([](AgentObserver& o) { o.OnFailure(Now()); });
  proto::AgentMessage message;
  proto::WorkersFailed& failed = *message.mutable_workers_failed();
  failed.set_round(e.round.value());
  // There will be a report.
  if (full_host_.empty()) boost::asio::post(io_, [this] { LookUpHostName(); });
  *failed.mutable_failure() = workers_.failures().Encode(e.local_rank, Now());
  link_->Send(message);
}

void Agent::Do(const SendWorkersSucceeded& e) {
  proto::AgentMessage message;
  message.mutable_workers_succeeded()->set_round(e.round.value());
  link_->Send(message);
}

void Agent::Do(const SendReady& e) {
  const absl::StatusOr<int> port = stores_.Offer();
  if (!port.ok()) {
    boost::asio::post(io_, [this, why = port.status()] { Break(why); });
    return;
  }
  proto::AgentMessage message;
  proto::Ready& ready = *message.mutable_ready();
  ready.set_round(e.round.value());
  ready.set_store_port(*port);
  for (proto::Failure& failure : workers_.failures().EncodeAll(Now()))
    *ready.add_failures() = std::move(failure);
  Observe([](AgentObserver& o) { o.OnWaiting(Now()); });
  link_->Send(message);
}

void Agent::Do(const SendSnapshotTaken& e) {
  proto::AgentMessage message;
  message.mutable_snapshot_taken()->set_round(e.round.value());
  message.mutable_snapshot_taken()->set_step(e.step);
  link_->Send(message);
}

void Agent::Do(const Rejoin& e) {
  workers_.SayNothingWhenDead();
  // What the old coordinator has not said by now will not be said.
  if (!looking_up_) display_.ShowAll(HostName());
  if (link_ != nullptr) {
    link_->Close();
    old_link_ = std::move(link_);
  }
  relink_(e.limit, [this](absl::StatusOr<std::unique_ptr<CoordinatorLink>> link) {
    if (machine_.state() != AgentMachine::State::kSeeking) return;  // A signal was faster.
    if (!link.ok()) return Step(RejoinFailed{std::string(link.status().message())});
    JoinBy(*std::move(link));
  });
}

void Agent::Do(const SendLeave& e) {
  if (link_ == nullptr) return;
  proto::AgentMessage message;
  message.mutable_leave()->set_reason(e.reason);
  message.mutable_leave()->set_workers_gone(e.workers_gone);
  link_->Send(message);
}

void Agent::Do(const ReportFailures&) {
  if (workers_.failures().empty()) return;
  workers_.CompleteFailures();
  const std::vector<FailureRecord>& failures = workers_.failures().records();
  const FailureRecord& cause = failures[RootCause(failures)];
  log_.Say(absl::StrCat("failed (exitcode: ", TorchExitCode(cause.exit),
                        ") local_rank: ", cause.local_rank.value(), " (pid: ", cause.pid,
                        ") of binary: ", config_.program.argv.empty() ? "" : config_.program.argv[0]));
  display_.KeepNode(failures);
  ShowLater();
}

// Whatever is to be done now comes first: the next round may begin with it.
void Agent::ShowLater() {
  boost::asio::post(io_, [this] {
    if (!looking_up_) display_.Show(HostName());
  });
}

void Agent::LookUpHostName() {
  if (looking_up_ || !full_host_.empty()) return;
  looking_up_ = true;
  AskAside<std::string>(io_, kNameLimit, LocalHostName, [this](std::optional<std::string> name) {
    looking_up_ = false;
    full_host_ = name.value_or(node_.host);
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
  AskAside<Lines>(io_, kOwnErrorLimit, leave, [this, done = std::move(done)](std::optional<Lines> said) {
    if (!said) {
      said = {
          absl::StrCat("the error is not in ", config_.own_error_file, ": its file system does not answer")};
    }
    for (const std::string& line : *said) log_.Say(line);
    done();
  });
}

void Agent::Do(const Tell& e) { log_.Say(e.text); }

void Agent::Do(const Finish& e) {
  timer_.cancel();
  if (link_) link_->Close();
  finish_ = e;
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
