#include "launcher/agent/agent.h"

#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "boost/asio/post.hpp"
#include "launcher/agent/worker_environment.h"
#include "launcher/report/error_file.h"
#include "launcher/report/failure_report.h"
#include "launcher/report/local_host.h"
#include "proto/protocol_version.h"

namespace ddprun {
namespace {

// Processes that not even SIGKILL has ended by then are reported and left.
constexpr Duration kKillLimit = seconds(10);
constexpr size_t kStderrLines = 20;
// For output that is on its way when nobody writes any more: longer only if a file system or terminal hangs.
constexpr Duration kDrainLimit = seconds(2);
constexpr Duration kFlushLimit = seconds(5);

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

}  // namespace

Agent::Agent(boost::asio::io_context& io, Parts parts, std::function<void(int)> finished)
    : io_(io),
      parts_(Parts{.config = parts.config,
                   .log = parts.log,
                   .stores = parts.stores,
                   .warden = {},
                   .host = parts.host,
                   .address = parts.address,
                   .first_last_call = parts.first_last_call,
                   .last_call = parts.last_call}),
      config_(*parts.config),
      log_(*parts.log),
      finished_(std::move(finished)),
      environment_(CurrentEnvironment()),
      machine_({.nproc = config_.num_local_workers, .host = parts.host, .grace = config_.shutdown_timeout}),
      console_(io, [this](const absl::Status& why) { log_.Say(why.message()); }),
      processes_(io, std::move(parts.warden),
                 {.started =
                      [this](ProcessClient::WorkerId id, pid_t pid) {
                        if (const auto it = workers_.find(id); it != workers_.end()) it->second.pid = pid;
                      },
                  .ended = [this](ProcessClient::WorkerId id, const ExitInfo& exit,
                                  const ResourceUse&) { OnWorkerEnded(id, exit); },
                  // This node can start no worker any more: it leaves the job to the others.
                  .warden_lost = [this](const absl::Status& why) { Break(why); }}),
      timer_(io) {}

void Agent::Start(std::unique_ptr<CoordinatorLink> link) {
  absl::StatusOr<LogLayout> logs = LogLayout::Create(config_.log_dir, config_.run_id);
  // The link comes later: there is nobody to say goodbye to.
  if (!logs.ok()) return Break(WithContext(logs.status(), "--log-dir"));
  link_ = std::move(link);
  logs_.emplace(*std::move(logs));
  if (absl::StatusOr<std::unique_ptr<WorkerSocket>> socket = WorkerSocket::Open(io_); socket.ok()) {
    reports_ = *std::move(socket);
  } else {
    log_.Say(socket.status().message());
  }
  if (LimitsOmpThreads(environment_, config_)) {
    log_.Say(
        "OMP_NUM_THREADS is not set: each worker gets 1, so that they do not crowd each other out; set it to "
        "what suits your program");
  }
  link_->Start(
      {.on_message = [this](const proto::CoordinatorMessage& m) { OnMessage(m); },
       .on_lost = [this](const absl::Status& why) { Step(CoordinatorLost{std::string(why.message())}); }});
  Join();
}

void Agent::Join() {
  const absl::StatusOr<int> port = parts_.stores->Offer();
  if (!port.ok()) return Break(port.status());
  proto::AgentMessage message;
  proto::Join& join = *message.mutable_join();
  join.set_protocol(kProtocolVersion);
  join.set_run_id(config_.run_id);
  join.set_node_id(NodeIdOf(parts_.host));
  join.set_host(parts_.host);
  join.set_addr(parts_.address);
  join.set_store_port(*port);
  join.set_nproc(config_.num_local_workers);
  join.set_role(config_.role);
  if (config_.node_rank) {
    join.set_has_node_rank(true);
    join.set_node_rank(*config_.node_rank);
  }
  proto::JobRules& rules = *join.mutable_rules();
  rules.set_min_nodes(config_.min_nodes);
  rules.set_max_nodes(config_.max_nodes);
  rules.set_max_restarts(config_.max_restarts);
  rules.set_first_last_call_ms(ToMillis(parts_.first_last_call));
  rules.set_last_call_ms(ToMillis(parts_.last_call));
  rules.set_join_timeout_ms(ToMillis(config_.rdzv.join_timeout));
  rules.set_lease_ms(ToMillis(config_.rdzv.lease));
  // The agents' own grace and kill limits end first.
  rules.set_drain_timeout_ms(ToMillis(config_.shutdown_timeout + kKillLimit + config_.rdzv.lease));
  link_->Send(message);
}

void Agent::OnSignal(int signo) { Step(SignalReceived{signo}); }
void Agent::Break(const absl::Status& why) { Step(AgentBroken{why}); }

void Agent::OnMessage(const proto::CoordinatorMessage& message) {
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kWelcome:
    case proto::CoordinatorMessage::kHeard:
    case proto::CoordinatorMessage::kTakeSnapshot:
    case proto::CoordinatorMessage::kReport:
      return;  // the link's business
    case proto::CoordinatorMessage::kWaiting:
      return log_.Say(message.waiting().text());
    case proto::CoordinatorMessage::kStart:
      return Step(RoundStarted{FromStart(message.start()), message.start().reason()});
    case proto::CoordinatorMessage::kStop:
      return Step(RoundStopped{Round(message.stop().round()), message.stop().reason()});
    case proto::CoordinatorMessage::kDismiss:
      return Step(Dismissed{absl::Status(static_cast<absl::StatusCode>(message.dismiss().code()),
                                         message.dismiss().message())});
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
  if (machine_.state() != before) SetTimer();
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
  assignment_ = e.assignment;
  failures_.clear();
  workers_.clear();
  outputs_.clear();
  if (assignment_.group_rank != GroupRank(0)) parts_.stores->Withdraw();
  log_.Event("round_started",
             {{"round", absl::StrCat(assignment_.round.value())},
              {"group_rank", absl::StrCat(assignment_.group_rank.value())},
              {"world_size", absl::StrCat(assignment_.world_size)},
              {"restart_count", absl::StrCat(assignment_.restart_count)},
              {"master", absl::StrCat(assignment_.master_addr, ":", assignment_.master_port)}});
  const std::vector<WorkerFiles> files = NewLogFiles();
  for (int i = 0; i < config_.num_local_workers; ++i) {
    const LocalRank local_rank(i);
    outputs_.push_back(std::make_unique<WorkerOutput>(
        console_, WorkerOutput::Plan{.redirects = config_.redirects.For(local_rank),
                                     .tee = config_.tee.For(local_rank),
                                     .files = files[i],
                                     .prefix = absl::StrCat("[", config_.role, i, "]:")}));
    const ProcessClient::WorkerId id = next_worker_++;
    workers_[id] = {.local_rank = local_rank, .error_file = files[i].error_json};
    processes_.Spawn(id, {.argv = ArgumentsFor(config_.program, local_rank),
                          .env = WorkerEnvironment(environment_, config_, assignment_, local_rank,
                                                   files[i].error_json, reports_ ? reports_->name() : ""),
                          .stdout_fd = outputs_.back()->stdout_fd(),
                          .stderr_fd = outputs_.back()->stderr_fd()});
    outputs_.back()->CloseChildEnds();
  }
}

std::vector<WorkerFiles> Agent::NewLogFiles() {
  absl::StatusOr<std::vector<WorkerFiles>> files =
      logs_->NewAttempt(assignment_.restart_count, config_.num_local_workers);
  if (files.ok()) return *std::move(files);
  log_.Say(absl::StrCat("the workers' files cannot be made, going on without them: ",
                        std::string(files.status().message())));
  return std::vector<WorkerFiles>(config_.num_local_workers);
}

void Agent::OnWorkerEnded(ProcessClient::WorkerId id, const ExitInfo& exit) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) return;
  const Worker worker = it->second;
  workers_.erase(it);
  if (!Succeeded(exit)) {
    failures_.push_back(
        MakeFailureRecord({.rank = Rank(assignment_.first_rank.value() + worker.local_rank.value()),
                           .local_rank = worker.local_rank,
                           .host = parts_.host,
                           .pid = worker.pid,
                           .exit = exit,
                           .noticed = std::time(nullptr)},
                          worker.error_file));
  }
  Step(WorkerEnded{worker.local_rank, exit, ProgressOf(worker.local_rank)});
}

std::string Agent::ProgressOf(LocalRank local_rank) const {
  if (reports_ == nullptr) return "";
  const std::optional<proto::WorkerReport> report = reports_->Last(assignment_.round, local_rank);
  if (!report) return "";
  std::string progress = absl::StrCat("after step ", report->step());
  if (!report->message().empty()) absl::StrAppend(&progress, " (", report->message(), ")");
  return progress;
}

void Agent::Do(const SignalWorkers& e) { processes_.SignalAll(e.signo); }

void Agent::Do(const KillWorkers&) {
  processes_.KillAll(kKillLimit, [this](const std::vector<LeftOver>& left_over) {
    for (const LeftOver& process : left_over) {
      log_.Say(absl::StrCat("cannot be killed, going on without it: ", ToString(process)));
    }
    DrainOutputs();
  });
}

void Agent::DrainOutputs() {
  undrained_ = static_cast<int>(outputs_.size());
  for (const std::unique_ptr<WorkerOutput>& output : outputs_) {
    output->Drain(kDrainLimit, [this] {
      if (--undrained_ == 0) Step(WorkersGone{});
    });
  }
}

void Agent::Do(const SendWorkersFailed& e) {
  proto::AgentMessage message;
  message.mutable_workers_failed()->set_round(e.round.value());
  message.mutable_workers_failed()->set_cause(e.cause);
  link_->Send(message);
}

void Agent::Do(const SendWorkersSucceeded& e) {
  proto::AgentMessage message;
  message.mutable_workers_succeeded()->set_round(e.round.value());
  link_->Send(message);
}

void Agent::Do(const SendReady& e) {
  const absl::StatusOr<int> port = parts_.stores->Offer();
  if (!port.ok()) {
    boost::asio::post(io_, [this, why = port.status()] { Break(why); });
    return;
  }
  proto::AgentMessage message;
  message.mutable_ready()->set_round(e.round.value());
  message.mutable_ready()->set_store_port(*port);
  link_->Send(message);
}

void Agent::Do(const SendLeave& e) {
  if (link_ == nullptr) return;
  proto::AgentMessage message;
  message.mutable_leave()->set_reason(e.reason);
  link_->Send(message);
}

void Agent::Do(const ReportFailures&) {
  if (failures_.empty()) return;
  const std::string host = LocalHostName();
  for (FailureRecord& failure : failures_) {
    failure.host = host;
    failure.stderr_tail = outputs_[failure.local_rank.value()]->StderrTail().value_or("");
  }
  log_.Write(FormatFailureReport(config_.program.name, failures_, absl::LocalTimeZone()));
  log_.Write(FormatStderrTail(failures_, kStderrLines));
  PassOnRootCause();
}

void Agent::PassOnRootCause() const {
  const char* const path = getenv("TORCHELASTIC_ERROR_FILE");
  const FailureRecord& cause = failures_[RootCause(failures_)];
  if (path == nullptr || *path == '\0' || !cause.worker_error) return;
  if (absl::Status written = WriteErrorFile(path, *cause.worker_error, TorchExitCode(cause.exit));
      !written.ok()) {
    log_.Say(written.message());
  }
}

void Agent::Do(const Tell& e) { log_.Say(e.text); }

void Agent::Do(const Finish& e) {
  timer_.cancel();
  if (link_) link_->Close();
  console_.Flush(kFlushLimit, [this, exit_code = e.exit_code] { finished_(exit_code); });
}

}  // namespace ddprun
