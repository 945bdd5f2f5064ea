#include "launcher/launch.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/signal_set.hpp"
#include "launcher/agent/agent.h"
#include "launcher/config/join_command.h"
#include "launcher/hosting.h"
#include "launcher/worker_stores.h"
#include "rendezvous/client/find_coordinator.h"
#include "rendezvous/client/grpc_link.h"
#include "rendezvous/server/coordinator_host.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

// How long other agents may take to hear the last word.
constexpr Duration kFarewell = seconds(5);
constexpr Duration kDefaultLastCall = seconds(30);
// For nodes that join a job whose first node chose the endpoint: started by hand, one after the other.
constexpr Duration kShortLastCall = seconds(1);

sigset_t HeldSignals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int signo : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) sigaddset(&held, signo);
  return held;
}

// Those that came since HoldSignals() are handled from here on.
void AddSignals(asio::signal_set& signals) {
  for (const int signo : {SIGTERM, SIGINT, SIGQUIT}) signals.add(signo);
  // Who started us with nohup wants us to survive the terminal.
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) != 0 || hangup.sa_handler != SIG_IGN) signals.add(SIGHUP);
  const sigset_t held = HeldSignals();
  pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
}

Coordinator::Log EventLog(const AgentLog& log) {
  return [&log](absl::string_view event, absl::string_view run_id, absl::string_view reason) {
    log.Event(event, {{"job", run_id}, {"reason", reason}});
  };
}

// What the destructors need: members are destroyed from the last to the first, the agent before what it uses.
class Launcher {
 public:
  Launcher(const LaunchConfig& config, const AgentLog& log, const std::string& host, WardenHandle warden)
      : config_(config), log_(log), host_name_(host), warden_(std::move(warden)), signals_(io_) {}

  int Run() {
    AddSignals(signals_);
    WaitForSignal();
    absl::StatusOr<bool> hosts = HostIfOurs();
    if (!hosts.ok()) {
      log_.Say(hosts.status().message());
      return 1;
    }
    if (*hosts) {
      StartAgent(coordinator_->Link(address_), address_);
    } else {
      asio::co_spawn(io_, FindAndJoin(), [](std::exception_ptr error) {
        if (error) std::rethrow_exception(error);
      });
    }
    io_.run();
    return exit_code_;
  }

 private:
  bool chose_endpoint() const { return config_.hosting == Hosting::kHere && config_.endpoint.port == 0; }

  // True if this process is the coordinator's host now, false if another one is.
  absl::StatusOr<bool> HostIfOurs() {
    const Endpoint& endpoint = config_.endpoint;
    if (config_.hosting == Hosting::kElsewhere) return false;
    if (config_.hosting == Hosting::kByAddress && !IsThisMachine(endpoint.host)) return false;
    absl::StatusOr<std::unique_ptr<CoordinatorHost>> coordinator =
        CoordinatorHost::Open(io_, ListenAddress(endpoint.host), endpoint.port, EventLog(log_));
    if (!coordinator.ok()) {
      why_not_host_ = WithContext(coordinator.status(), "cannot host the coordinator");
      // Another agent of this machine may have been faster; FindCoordinator sees who it is.
      if (config_.hosting == Hosting::kByAddress) return false;
      return why_not_host_;
    }
    coordinator_ = *std::move(coordinator);
    if (!config_.local_addr.empty()) {
      address_ = config_.local_addr;
    } else if (config_.max_nodes == 1) {
      address_ = "127.0.0.1";
    } else if (IsLoopback(endpoint.host)) {
      address_ = ListenAddress(endpoint.host);
    } else {
      address_ = endpoint.host.empty() ? AddressOfThisMachine() : endpoint.host;
    }
    if (config_.max_nodes > 1 && chose_endpoint()) {
      log_.Say(absl::StrCat("other nodes join with: ",
                            JoinCommand(config_, Endpoint{address_, coordinator_->port()})));
    }
    return true;
  }

  asio::awaitable<void> FindAndJoin() {
    const absl::StatusOr<FoundCoordinator> found =
        co_await FindCoordinator(config_.endpoint.host, config_.endpoint.port, config_.rdzv.read_timeout,
                                 [this](absl::string_view text) { log_.Say(text); });
    if (!found.ok()) {
      if (!why_not_host_.ok()) log_.Say(why_not_host_.message());
      log_.Say(found.status().message());
      exit_code_ = 1;
      io_.stop();
      co_return;
    }
    StartAgent(MakeGrpcLink(io_, found->address, found->port),
               config_.local_addr.empty() ? found->local_address : config_.local_addr);
  }

  void StartAgent(std::unique_ptr<CoordinatorLink> link, const std::string& address) {
    if (coordinator_ != nullptr && config_.backend == Backend::kStatic) {
      stores_ = std::make_unique<CoordinatorPortStores>(coordinator_.get());
    } else {
      stores_ = std::make_unique<FreshStores>(io_, ListenAddress(address));
    }
    const Duration last_call =
        config_.rdzv.last_call_timeout.value_or(chose_endpoint() ? kShortLastCall : kDefaultLastCall);
    agent_.emplace(io_,
                   Agent::Parts{.config = &config_,
                                .log = &log_,
                                .stores = stores_.get(),
                                .warden = std::move(warden_),
                                .host = host_name_,
                                .address = address,
                                .first_last_call = chose_endpoint() ? Duration::zero() : last_call,
                                .last_call = last_call},
                   [this](int exit_code) { Finish(exit_code); });
    agent_->Start(std::move(link));
  }

  void WaitForSignal() {
    signals_.async_wait([this](const boost::system::error_code& error, int signo) {
      if (error) return;
      if (agent_) {
        agent_->OnSignal(signo);
      } else {
        log_.Say(absl::StrCat("received ", SignalName(signo), " while looking for the coordinator"));
        exit_code_ = 1;
        io_.stop();
      }
      WaitForSignal();
    });
  }

  void Finish(int exit_code) {
    exit_code_ = exit_code;
    if (coordinator_ == nullptr) return io_.stop();
    // With the job over all agents have been told; else they are now.
    coordinator_->Close(absl::StrCat("the agent on ", host_name_, ", which hosts the coordinator, has ended"),
                        kFarewell, [this] { io_.stop(); });
  }

  const LaunchConfig& config_;
  const AgentLog& log_;
  const std::string host_name_;
  asio::io_context io_{1};
  WardenHandle warden_;
  asio::signal_set signals_;
  std::string address_;        // where others reach this node, if it hosts
  absl::Status why_not_host_;  // not OK: it should have hosted by the endpoint's name
  std::unique_ptr<CoordinatorHost> coordinator_;
  std::unique_ptr<RoundStores> stores_;
  std::optional<Agent> agent_;
  int exit_code_ = 1;
};

}  // namespace

void HoldSignals() {
  const sigset_t held = HeldSignals();
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

int Launch(const LaunchConfig& config, const AgentLog& log, const std::string& host, WardenHandle warden) {
  for (const std::string& warning : config.warnings) log.Say(warning);
  // The other nodes' workers would wait for it in vain.
  if (!config.local_addr.empty() && !Resolves(config.local_addr)) {
    log.Say(absl::StrCat("--local-addr=", config.local_addr,
                         " does not resolve: give an address of this node, or a name that all nodes know"));
    return 1;
  }
  return Launcher(config, log, host, std::move(warden)).Run();
}

int RunStoreOnly(const StoreConfig& config, const AgentLog& log) {
  asio::io_context io(1);
  // Before anything is printed: who reads the port may end at once.
  const pid_t parent = getppid();
  asio::posix::stream_descriptor parent_end(io);
  if (parent != 0) {  // 0: the first process of a container; it has none that it could watch
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, parent, 0));
    if (fd < 0 && errno != ESRCH) {
      log.Say(absl::StrCat("cannot watch its parent (pidfd_open: ", std::strerror(errno),
                           "): Linux 5.3 or later is needed"));
      return 1;
    }
    if (fd >= 0) parent_end.assign(fd);
    if (fd < 0 || getppid() != parent) return 0;  // gone already
  }

  asio::signal_set signals(io);
  AddSignals(signals);
  absl::StatusOr<std::unique_ptr<CoordinatorHost>> coordinator =
      CoordinatorHost::Open(io, config.host == "0.0.0.0" ? "" : config.host, config.port, EventLog(log));
  if (!coordinator.ok()) {
    log.Say(coordinator.status().message());
    return 1;
  }
  int exit_code = 1;
  const auto end = [&](const std::string& reason, int code) {
    exit_code = code;
    log.Say(absl::StrCat("the store ends: ", reason));
    (*coordinator)->Close(reason, kFarewell, [&io] { io.stop(); });
  };
  if (parent_end.is_open()) {
    parent_end.async_wait(asio::posix::stream_descriptor::wait_read,
                          [&](const boost::system::error_code& error) {
                            if (!error) end("its parent ended", 0);
                          });
  }
  signals.async_wait([&](const boost::system::error_code& error, int signo) {
    if (!error) end(absl::StrCat("received ", SignalName(signo)), 0);
  });
  std::printf("%d\n", (*coordinator)->port());
  if (std::fflush(stdout) != 0) {
    log.Say("cannot write the port to stdout");
    return 1;
  }
  io.run();
  return exit_code;
}

}  // namespace ddprun
