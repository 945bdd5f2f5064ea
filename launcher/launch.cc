#include "launcher/launch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_info.h"
#include "base/status_macros.h"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/signal_set.hpp"
#include "launcher/agent/agent.h"
#include "launcher/agent/background_task.h"
#include "launcher/agent/traced_link.h"
#include "launcher/cli/exit_code.h"
#include "launcher/config/join_command.h"
#include "launcher/coordinator_log.h"
#include "launcher/dry_run.h"
#include "launcher/find_job.h"
#include "launcher/held_signals.h"
#include "launcher/host_addresses.h"
#include "launcher/hosting.h"
#include "launcher/job_register.h"
#include "launcher/local_address.h"
#include "launcher/logs/log_directory.h"
#include "launcher/observers/observers.h"
#include "launcher/open_registered_job.h"
#include "launcher/print_out.h"
#include "launcher/recording_file.h"
#include "launcher/registered_job.h"
#include "launcher/report/own_error.h"
#include "launcher/worker_stores.h"
#include "launcher/workers/worker_environment.h"
#include "net/endpoint.h"
#include "net/local_host.h"
#include "rendezvous/client/find_coordinator.h"
#include "rendezvous/client/gone_line.h"
#include "rendezvous/client/grpc_link.h"
#include "rendezvous/server/coordinator_host.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

constexpr Duration kDefaultLastCall = seconds(30);
// The last call of a job whose first node chose the endpoint. A user starts the other nodes of such a job
// by hand, one at a time.
constexpr Duration kShortLastCall = seconds(1);
// Time limit for name lookups before the agent starts.
constexpr Duration kResolveLimit = seconds(10);
// Time limit for flushing the log directory before exit.
constexpr Duration kFlushLimit = seconds(5);

using SearchHandler = std::function<void(SearchResult)>;

// The process's io_context. It is never destroyed, because its destructor would wait for pending name
// lookups.
asio::io_context& TheLoop() {
  static auto* const io = new asio::io_context(1);
  return *io;
}

void Rethrow(std::exception_ptr error) {
  if (error) std::rethrow_exception(error);
}

// Member order matters: the agent is declared after the objects that it borrows, so it is destroyed before
// them.
class Launcher {
 public:
  Launcher(const LaunchConfig& config, AgentLog& log, const std::string& host, WardenHandle warden)
      : config_(config),
        log_(log),
        host_name_(config.host_name.empty() ? host : config.host_name),
        io_(TheLoop()),
        warden_(std::move(warden)),
        signals_(io_),
        log_directory_(io_, &config, &log),
        own_error_(config.own_error_file, [&log](const std::string& text) { log.Say(text); }),
        observers_(io_, config, log) {}

  int Run() {
    std::vector<int> signals = config_.signals_to_handle;
    for (const PreemptSignal& notice : config_.preempt_signals) signals.push_back(notice.signo);
    TakeSignals(signals_, signals);
    WaitForSignal();
    CheckLocalAddress();
    io_.run();
    return exit_code_;
  }

 private:
  bool chose_endpoint() const { return config_.hosting == Hosting::kHere && config_.endpoint.port == 0; }

  void CheckLocalAddress() {
    ReadLocalAddress(io_, config_.local_addr, [this](absl::StatusOr<LocalAddress> local) {
      if (ended_) return;
      if (!local.ok()) return End(EndReason::kRejected, std::string(local.status().message()));
      local_addr_ = std::move(local->name);
      own_address_ = std::move(local->numeric);
      FindOutWhoHosts();
    });
  }

  void FindOutWhoHosts() {
    if (ended_) return;
    if (config_.has_register() && !config_.record.empty()) {
      const absl::Status writable = RecordingFile::CheckFolder(config_.record);
      if (!writable.ok()) return End(EndReason::kRejected, std::string(writable.message()));
    }
    if (config_.backend == Backend::kEtcd) return FindOwnAddress();
    if (config_.endpoints.size() > 1) {
      return ComputeInBackground<std::vector<size_t>>(
          io_, kResolveLimit, [config = config_] { return EndpointsHere(config); },
          [this](const std::optional<std::vector<size_t>>& here) {
            endpoints_here_ = here.value_or(std::vector<size_t>());
            Begin(!endpoints_here_.empty());
          });
    }
    const std::string& host = config_.endpoint.host;
    if (config_.hosting == Hosting::kHere && !config_.candidate_ports.empty()) {
      return ComputeInBackground<std::string>(
          io_, kResolveLimit,
          [scheduler = config_.scheduler, host] { return ReachableName(scheduler, host); },
          [this](const std::optional<std::string>& name) {
            host_of_coordinator_ = name.value_or(config_.endpoint.host);
            Begin(true);
          });
    }
    if (config_.hosting != Hosting::kByAddress) return Begin(config_.hosting == Hosting::kHere);
    if (const std::optional<bool> known = IsThisMachineAtOnce(host)) return Begin(*known);
    ComputeInBackground<bool>(
        io_, kResolveLimit, [host] { return IsThisMachine(host); },
        [this](std::optional<bool> here) {
          if (!here && !ended_) {
            log_.Say(absl::StrCat("cannot resolve ", config_.endpoint.host, ": no answer within ",
                                  kResolveLimit / seconds(1), " s; assuming that it is another machine"));
          }
          Begin(here.value_or(false));
        });
  }

  // For a job with a register.
  void FindOwnAddress() {
    if (!local_addr_.empty()) return FindInRegister(local_addr_);
    ComputeInBackground<std::string>(
        io_, kResolveLimit, [config = config_] { return AddressTowardsRegister(config); },
        [this](const std::optional<std::string>& address) {
          if (!ended_) FindInRegister(address.value_or(AddressOfThisMachine()));
        });
  }

  void FindInRegister(const std::string& address) {
    address_ = address;
    if (own_address_.empty()) own_address_ = address;
    absl::StatusOr<std::unique_ptr<RegisteredJob>> job = OpenOnEtcd(io_, config_, log_, address_);
    if (!job.ok()) return End(EndReason::kRejected, std::string(job.status().message()));
    registered_ = *std::move(job);
    FindByRegister();
  }

  void FindByRegister() {
    registered_->Find(config_.rdzv.read_timeout, /*first=*/true, [this](SearchResult result) {
      if (ended_) return;
      if (auto* link = std::get_if<std::unique_ptr<CoordinatorLink>>(&result)) {
        return StartAgent(std::move(*link), address_);
      }
      if (const auto* over = std::get_if<Dismissed>(&result)) {
        return End(EndReasonOf(over->reason), over->message);
      }
      const absl::Status& why = std::get<absl::Status>(result);
      End(absl::IsUnavailable(why) ? EndReason::kJoinTimeout : EndReason::kRejected,
          std::string(why.message()));
    });
  }

  std::vector<std::pair<std::string, std::string>> GoneNodes() const {
    if (registered_ == nullptr) return {};
    return registered_->host().coordinator().GoneNodes();
  }

  // The coordinator of this process, which may not lead a job with a register; null: there is none.
  CoordinatorHost* coordinator() {
    return registered_ != nullptr ? &registered_->host() : coordinator_.get();
  }

  void Begin(bool hosts_here) {
    if (ended_) return;
    log_.Detail(absl::StrCat("the coordinator is at ", ToString(config_.endpoint), ", ",
                             hosts_here ? "on this node" : "on another node"));
    if (hosts_here) {
      if (absl::Status hosts = Host(); hosts.ok()) {
        if (registered_ != nullptr) return FindByRegister();
        return StartAgent(coordinator_->Link(address_), address_);
      } else if (coordinator() != nullptr || config_.hosting != Hosting::kByAddress) {
        return End(EndReason::kRejected, std::string(hosts.message()));
      } else {
        log_.Detail(hosts.message());
        why_not_host_ = hosts;  // Another agent on this machine may already host the coordinator.
      }
    }
    asio::co_spawn(io_, FindAndJoin(), Rethrow);
  }

  absl::Status Host() {
    address_ = AddressOfHost(config_, local_addr_, host_of_coordinator_);
    RETURN_IF_ERROR(OpenCoordinator(), "cannot host the coordinator");
    if (!config_.record.empty() && coordinator_ != nullptr) {
      // Open the file only after the port is bound: if this machine runs two agents, only the agent that
      // hosts the coordinator may truncate the file.
      ASSIGN_OR_RETURN(recording_, RecordingFile::Open(io_, config_.record, &log_));
      coordinator_->RecordTo(recording_->Sink());
    }
    const int port = coordinator()->port();
    log_.Detail(absl::StrCat("hosting the coordinator on port ", port,
                             "; workers of other nodes reach this node at ", address_));
    if (config_.max_nodes > 1 && chose_endpoint()) {
      log_.Say(absl::StrCat("other nodes join with: ", JoinCommand(config_, Endpoint{address_, port})));
    }
    return absl::OkStatus();
  }

  // Opens the coordinator on the first free port of those on which it may be.
  absl::Status OpenCoordinator() {
    if (config_.has_voters()) {
      ASSIGN_OR_RETURN(registered_, OpenAtEndpoint(io_, config_, log_, address_, endpoints_here_));
      address_ = registered_->address();
      return absl::OkStatus();
    }
    std::vector<int> ports = config_.candidate_ports;
    if (ports.empty()) ports = {config_.endpoint.port};
    ASSIGN_OR_RETURN(coordinator_, CoordinatorHost::OpenFirst(io_, ListenAddress(config_.endpoint.host),
                                                              ports, CoordinatorLog(log_)));
    return absl::OkStatus();
  }

  asio::awaitable<void> FindAndJoin() {
    const absl::StatusOr<FoundCoordinator> found =
        co_await FindJob(io_, config_, log_, [this] { return ended_; });
    if (ended_) co_return;
    if (!found.ok()) {
      if (!why_not_host_.ok()) log_.Say(why_not_host_.message());
      End(absl::IsUnavailable(found.status()) ? EndReason::kJoinTimeout : EndReason::kRejected,
          std::string(found.status().message()));
      co_return;
    }
    found_ = *found;
    log_.Detail(absl::StrCat("found the coordinator at ", ToString(Endpoint{found_.address, found_.port}),
                             "; it sees this node as ", found_.local_address));
    address_ = found_.local_address;
    // If the coordinator is on this machine, its host name may resolve to loopback here. Other nodes need an
    // address that is not loopback.
    if (IsLoopback(address_) && !IsLoopback(config_.endpoint.host)) address_ = AddressOfThisMachine();
    if (own_address_.empty()) own_address_ = address_;
    if (!local_addr_.empty()) address_ = local_addr_;
    if (!config_.has_voters()) {
      StartAgent(MakeGrpcLink(io_, found_.address, found_.port), address_);
      co_return;
    }
    absl::StatusOr<std::unique_ptr<RegisteredJob>> job = OpenElsewhere(io_, config_, log_, address_);
    if (!job.ok()) {
      End(EndReason::kRejected, std::string(job.status().message()));
      co_return;
    }
    registered_ = *std::move(job);
    StartAgent(registered_->Follow(found_), address_);
  }

  // The address and the interface at which workers of other nodes reach the workers of this node.
  NodeNetwork Network() {
    if (config_.max_nodes == 1) return {};
    const std::string address = AddressForWorkers(
        own_address_, address_,
        coordinator() != nullptr ? coordinator()->AgentAddresses() : std::vector<std::string>());
    return {.address = address, .interface = InterfaceOfAddress(address)};
  }

  void StartAgent(std::unique_ptr<CoordinatorLink> link, const std::string& address) {
    if (coordinator_ != nullptr && config_.backend == Backend::kStatic) {
      stores_ = std::make_unique<CoordinatorPortStores>(coordinator_.get());
    } else if (!config_.agent_store) {
      stores_ = std::make_unique<WorkerHostedStores>(io_);
    } else {
      C10dServerOptions options;
      options.on_error = [this](const std::string& peer, const absl::Status& why) {
        log_.Say(absl::StrCat("worker store, ", peer, ": ", why.message()));
      };
      stores_ = std::make_unique<FreshStores>(io_, ListenAddress(address), std::move(options));
    }
    const Duration last_call =
        config_.rdzv.last_call_timeout.value_or(chose_endpoint() ? kShortLastCall : kDefaultLastCall);
    agent_.emplace(
        io_,
        Agent::Parts{.config = &config_,
                     .log = &log_,
                     .log_directory = &log_directory_,
                     .stores = stores_.get(),
                     .warden = std::move(warden_),
                     .host = host_name_,
                     .address = address,
                     .first_last_call = chose_endpoint() ? Duration::zero() : last_call,
                     .last_call = last_call,
                     .relink = [this](Duration limit, SearchHandler done) { Relink(limit, std::move(done)); },
                     .open_line = coordinator_ == nullptr
                                      ? OpenLine([this](auto done) { OpenWardensLine(std::move(done)); })
                                      : OpenLine(),
                     .observers = observers_.All(),
                     .network = [this] { return Network(); },
                     .leased = coordinator_ == nullptr,
                     .coordinator_port = registered_ != nullptr ? registered_->host().port() : 0,
                     .gone_nodes = [this] { return GoneNodes(); },
                     .line_of_round = registered_ != nullptr,
                     .seek_limit = registered_ != nullptr ? config_.rdzv.join_timeout : Duration::zero(),
                     .counts_down = isatty(STDERR_FILENO) == 1},
        [this](int exit_code) { Finish(exit_code); });
    agent_->Start(TraceLink(std::move(link), log_));
  }

  void Relink(Duration limit, SearchHandler done) {
    if (registered_ != nullptr) {
      return registered_->Find(limit, /*first=*/false, [this, done = std::move(done)](SearchResult result) {
        auto* const link = std::get_if<std::unique_ptr<CoordinatorLink>>(&result);
        if (link == nullptr) return done(std::move(result));
        done(TraceLink(std::move(*link), log_));
      });
    }
    if (coordinator_ == nullptr) return asio::co_spawn(io_, FindAgain(limit, std::move(done)), Rethrow);
    asio::post(io_, [this, done = std::move(done)] { done(TraceLink(coordinator_->Link(address_), log_)); });
  }

  // Best effort: without this connection, the coordinator detects this agent's death only when the node's
  // lease expires.
  void OpenWardensLine(std::function<void(int fd)> done) {
    std::optional<std::pair<std::string, int>> at(std::in_place, found_.address, found_.port);
    if (registered_ != nullptr) at = registered_->ListenerForWarden();
    if (!at) return;
    OpenGoneLine(io_, at->first, at->second,
                 [this, done = std::move(done)](absl::StatusOr<asio::ip::tcp::socket> line) {
                   if (line.ok()) return done(line->native_handle());
                   log_.Event("no_line_for_the_warden", {{"reason", line.status().message()}});
                 });
  }

  // Connects to the address at which the coordinator was first found. A new name lookup could lead to another
  // coordinator.
  asio::awaitable<void> FindAgain(Duration limit, SearchHandler done) {
    FindLimits limits;
    limits.total = limit;
    limits.refusal_is_final = true;
    limits.trace = [this](absl::string_view text) { log_.Detail(text); };
    const absl::StatusOr<FoundCoordinator> found =
        co_await FindCoordinator(found_.address, found_.port, limits, [](absl::string_view) {});
    if (found.ok()) {
      done(TraceLink(MakeGrpcLink(io_, found_.address, found_.port, limit), log_));
    } else {
      done(found.status());
    }
  }

  void WaitForSignal() {
    signals_.async_wait([this](const boost::system::error_code& error, int signo) {
      if (error) return;
      const auto notice =
          std::find_if(config_.preempt_signals.begin(), config_.preempt_signals.end(),
                       [signo](const PreemptSignal& signal) { return signal.signo == signo; });
      if (notice != config_.preempt_signals.end()) {
        OnNotice(*notice);
      } else {
        OnSignal(signo);
      }
      WaitForSignal();
    });
  }

  void OnSignal(int signo) {
    in_a_hurry_ = std::exchange(signaled_, true);
    if (ended_) {
      io_.stop();
    } else if (closing_) {
      CloseNow();
    } else if (agent_) {
      agent_->OnSignal(signo);
    } else {
      log_.Say(absl::StrCat("received ", SignalName(signo), " while looking for the coordinator"));
      own_error_.LeaveSignal(signo, std::time(nullptr));
      End(ReasonOfSignal(signo));
    }
  }

  void OnNotice(const PreemptSignal& signal) {
    if (ended_ || closing_) return;
    if (agent_) return agent_->OnNotice(signal);
    End(EndReason::kPreempted, absl::StrCat("received ", SignalName(signal.signo),
                                            ", a notice of pre-emption, while looking for the coordinator"));
  }

  // Ends the run before an agent exists.
  void End(EndReason reason, const std::string& why) {
    if (ended_) return;
    log_.Say(why);
    own_error_.LeaveReason(reason, why, std::time(nullptr));
    End(reason);
  }
  void End(EndReason reason) {
    exit_code_ = ExitCodeOf(reason, config_.exit_codes);
    ended_ = true;
    log_directory_.Flush(kFlushLimit, [this] {
      if (registered_ == nullptr) return FlushRecording();
      CloseCoordinator();
    });
  }

  void Finish(int exit_code) {
    exit_code_ = exit_code;
    if (coordinator() == nullptr) return io_.stop();
    closing_ = true;
    CloseCoordinator();
    // Later, because the coordinator has not yet received that this node has left.
    if (in_a_hurry_) asio::post(io_, [this] { CloseNow(); });
  }

  // If the job is over, all agents have been dismissed; otherwise Close dismisses them.
  void CloseCoordinator() {
    const std::string why =
        absl::StrCat("the agent on ", host_name_, ", which hosts the coordinator, has ended");
    if (registered_ != nullptr) return registered_->Close(why, kFarewell, [this] { FlushRecording(); });
    coordinator_->Close(why, kFarewell, [this] { FlushRecording(); });
  }

  void FlushRecording() {
    if (recording_ == nullptr) return io_.stop();
    recording_->Flush([this] { io_.stop(); });
  }

  void CloseNow() {
    if (coordinator()->num_open_jobs() > 0) log_.Say("not waiting for the workers of other nodes to stop");
    registered_ != nullptr ? registered_->CloseNow() : coordinator()->CloseNow();
  }

  const LaunchConfig& config_;
  AgentLog& log_;
  const std::string host_name_;
  asio::io_context& io_;
  WardenHandle warden_;
  asio::signal_set signals_;
  LogDirectory log_directory_;
  const OwnErrorFile own_error_;
  Observers observers_;
  std::string local_addr_;                    // --local-addr, or the address of the interface that it names
  std::string own_address_;                   // numeric address of this node; empty: see Network()
  std::string host_of_coordinator_;           // set if this node hosts the coordinator of a scheduler's job
  std::vector<size_t> endpoints_here_;        // see EndpointsHere; set if there are several endpoints
  std::string address_;                       // name or address at which other nodes reach this node
  absl::Status why_not_host_;                 // not OK: the endpoint names this node, but hosting failed
  FoundCoordinator found_;                    // set unless this node hosts the coordinator
  std::unique_ptr<RecordingFile> recording_;  // null: this process hosts no coordinator or does not record it
  std::unique_ptr<CoordinatorHost> coordinator_;
  std::unique_ptr<RegisteredJob> registered_;  // null: the job has no register
  std::unique_ptr<RoundStores> stores_;
  std::optional<Agent> agent_;
  bool signaled_ = false;
  bool in_a_hurry_ = false;  // a second signal was received
  bool ended_ = false;       // the run ended without an agent
  bool closing_ = false;     // the agent has finished; the coordinator waits for other agents
  int exit_code_ = 1;
};

}  // namespace

int Launch(const LaunchConfig& config, AgentLog& log, const std::string& host, WardenHandle warden) {
  for (const std::string& warning : config.warnings) log.Say(warning);
  if (config.dry_run) {
    const auto tell = [&log](absl::string_view text) { log.Say(text); };
    const absl::StatusOr<DryRunFacts> facts = GatherDryRunFacts(config, tell);
    if (facts.ok()) return PrintOut(DryRunText(config, *facts));
    log.Say(facts.status().message());
    return ExitCodeOf(EndReason::kRejected, config.exit_codes);
  }
  return Launcher(config, log, host, std::move(warden)).Run();
}

}  // namespace ddprun
