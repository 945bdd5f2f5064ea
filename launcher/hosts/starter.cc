#include "launcher/hosts/starter.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_info.h"
#include "base/text.h"
#include "launcher/agent/background_task.h"
#include "launcher/cli/exit_code.h"
#include "launcher/config/program.h"
#include "launcher/held_signals.h"
#include "launcher/hosts/host_process.h"
#include "launcher/hosts/sent_environment.h"
#include "launcher/hosts/ssh_command.h"
#include "launcher/hosts/ssh_host_name.h"
#include "launcher/hosts/start_message.h"
#include "launcher/logs/console.h"
#include "launcher/print_out.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;

// From the start of ssh until the agent has read its message: includes the connection, the login, and loading the binary.
constexpr Duration kStartLimit = seconds(60);
// How long the remaining hosts may go on if they are too few for --nnodes. They usually end by themselves.
constexpr Duration kTooFewLimit = seconds(10);
// For the name of the first host, before the hosts are started.
constexpr Duration kLookupLimit = seconds(10);
// For agents to end, in addition to --shutdown-timeout.
constexpr Duration kEndLimit = seconds(30);
// From SIGKILL of the ssh processes until the starter exits without having seen them end.
constexpr Duration kKillLimit = seconds(5);
constexpr Duration kFlushLimit = seconds(5);

std::string OwnPath() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

class Starter {
 public:
  Starter(const HostsConfig& config, StartMessage message, AgentLog& log)
      : config_(config),
        message_(std::move(message)),
        log_(log),
        binary_(OwnPath()),
        console_(io_, [&log](const absl::Status& problem) { log.Say(problem.message()); }),
        signals_(io_),
        children_(io_, SIGCHLD),
        start_limit_(io_),
        end_limit_(io_),
        still_here_(io_),
        too_few_(io_) {}

  int Run() {
    log_.SendTo([this](absl::string_view text) { console_.err().Write(text); });
    const absl::Cleanup restore_log = [this] { log_.SendTo({}); };
    std::vector<int> signals = config_.job.signals_to_handle;
    for (const PreemptSignal& notice : config_.job.preempt_signals) signals.push_back(notice.signo);
    TakeSignals(signals_, signals);
    WaitForSignal();
    WaitForChild();
    FindFirstHost();
    io_.run();
    return exit_code_;
  }

 private:
  struct Host {
    const HostSlots* slots;
    std::unique_ptr<HostProcess> process;  // null: not started, or ended
    bool cut = false;                      // this process has ended the connection
  };

  // Finds a name for the first host, with which the others look for the coordinator, then starts all hosts.
  void FindFirstHost() {
    const bool has_endpoint = config_.job.candidate_ports.empty();  // given, or not needed for one host
    if (has_endpoint) return StartAll();
    ComputeInBackground<std::string>(
        io_, kLookupLimit,
        [ssh = config_.ssh, first = config_.hosts[0]] { return ReachableHostName(ssh, first); },
        [this](const std::optional<std::string>& name) {
          if (name) message_.hosts[0].name = *name;
          if (!ending_) StartAll();
        });
  }

  void StartAll() {
    for (const HostSlots& slots : config_.hosts) hosts_.push_back({.slots = &slots, .process = nullptr});
    for (size_t i = 0; i < hosts_.size() && !ending_; ++i) {
      message_.node = static_cast<int>(i);
      absl::StatusOr<std::unique_ptr<HostProcess>> process =
          HostProcess::Start(io_, console_, SshCommand(config_.ssh, *hosts_[i].slots, binary_),
                             EncodeStart(message_), [this, i] { OnStarted(i); });
      if (process.ok()) {
        hosts_[i].process = *std::move(process);
        ++running_;
        continue;
      }
      log_.Say(absl::StrCat(hosts_[i].slots->name, ": ", process.status().message(),
                            absl::IsNotFound(process.status())
                                ? ": install OpenSSH's client, or give the command with --ssh-command"
                                : ": raise the limits of open files and processes (ulimit -Hn, ulimit -u)"));
      SetExitCode(ExitCodeOf(EndReason::kRejected, config_.job.exit_codes));
      EndAll();
    }
    if (!ending_) {
      start_limit_.expires_after(kStartLimit);
      start_limit_.async_wait([this](const boost::system::error_code& error) {
        if (!error) OnStartLimit();
      });
    }
    SayStillHere();
    if (running_ == 0) Finish();
  }

  void OnStarted(size_t i) {
    log_.Event("agent_started", {{"host", hosts_[i].slots->name}});
    if (++started_ == hosts_.size()) start_limit_.cancel();
  }

  void OnStartLimit() {
    for (const Host& host : hosts_) {
      if (host.process == nullptr || host.process->started()) continue;
      log_.Say(absl::StrCat(host.slots->name, ": no answer from ddprun within ", InSeconds(kStartLimit),
                            ": check that `", absl::StrJoin(config_.ssh, " "), " ", host.slots->login, " ",
                            binary_, " --version` works"));
      SetExitCode(ExitCodeOf(EndReason::kRejected, config_.job.exit_codes));
    }
    EndAll();
  }

  void SayStillHere() {
    still_here_.expires_after(kStillHereInterval);
    still_here_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      for (const Host& host : hosts_) {
        if (host.process != nullptr) host.process->Send(kStillHere);
      }
      SayStillHere();
    });
  }

  void WaitForSignal() {
    signals_.async_wait([this](const boost::system::error_code& error, int signo) {
      if (error) return;
      const bool is_notice =
          std::any_of(config_.job.preempt_signals.begin(), config_.job.preempt_signals.end(),
                      [signo](const PreemptSignal& notice) { return notice.signo == signo; });
      if (is_notice) {
        PassOn(signo);
      } else {
        OnSignal(signo);
      }
      WaitForSignal();
    });
  }

  void OnSignal(int signo) {
    ++num_signals_;
    log_.Say(absl::StrCat("received ", SignalName(signo),
                          num_signals_ < 3 ? absl::StrCat(": passing it on to ", Counted(running_, "host"))
                                           : ": ending all connections"));
    if (num_signals_ >= 3) return KillAll();
    PassOn(signo);
    EndStarting();
    if (!signo_) signo_ = signo;
    LimitEnd();
    if (hosts_.empty()) Finish();  // the first host is still being looked for
  }

  void PassOn(int signo) {
    for (const Host& host : hosts_) {
      if (host.process != nullptr) host.process->Send(static_cast<char>(signo));
    }
  }

  // Ends the job: agents that have started get SIGTERM. The life lines stay, so that later signals can be passed on.
  void EndAll() {
    PassOn(SIGTERM);
    EndStarting();
    LimitEnd();
  }

  // Ends the connections to hosts whose agents have not started. If an agent starts nevertheless, its life line ends.
  void EndStarting() {
    for (Host& host : hosts_) {
      if (host.process == nullptr || host.process->started()) continue;
      host.cut = true;
      host.process->CloseLine();
      host.process->Kill(SIGTERM);
    }
  }

  // No host may run longer than the agents need to stop their workers.
  void LimitEnd() {
    if (std::exchange(ending_, true)) return;
    start_limit_.cancel();
    const Duration limit = config_.job.shutdown_timeout + kEndLimit;
    end_limit_.expires_after(limit);
    end_limit_.async_wait([this, limit](const boost::system::error_code& error) {
      if (error) return;
      for (const Host& host : hosts_) {
        if (host.process == nullptr) continue;
        log_.Say(absl::StrCat(host.slots->name, ": ddprun has not ended within ", InSeconds(limit),
                              ": ending the connection; `", absl::StrJoin(config_.ssh, " "), " ",
                              host.slots->login, " pgrep -a ddprun` shows what is left"));
      }
      KillAll();
    });
  }

  void KillAll() {
    ending_ = true;
    for (Host& host : hosts_) {
      if (host.process == nullptr) continue;
      host.cut = true;
      host.process->Kill(SIGKILL);
    }
    end_limit_.expires_after(kKillLimit);
    end_limit_.async_wait([this](const boost::system::error_code& error) {
      if (!error) Finish();
    });
  }

  void WaitForChild() {
    children_.async_wait([this](const boost::system::error_code& error, int) {
      if (error) return;
      WaitForChild();
      // `ssh -G` of FindFirstHost is a child, too.
      if (hosts_.empty()) return;
      for (Host& host : hosts_) {
        int status = 0;
        if (host.process == nullptr || waitpid(host.process->pid(), &status, WNOHANG) <= 0) continue;
        OnEnd(host, host.process->Finish(status));
      }
      if (running_ == 0) Finish();
    });
  }

  void OnEnd(Host& host, const SshEnd& end) {
    host.process.reset();
    --running_;
    if (end.started && end.exit_code == 0 && end.signal == 0) return;
    if (host.cut) return;
    const bool is_agents_code = end.started && end.signal == 0 && end.exit_code != kSshFailed;
    // After the first failure, or when the job is ended, the agents usually exit with the same code.
    if (!is_agents_code || (failed_ == 0 && !ending_)) {
      log_.Say(SshFailure(*host.slots, end, config_.ssh, binary_));
    }
    ++failed_;
    SetExitCode(is_agents_code ? end.exit_code
                               : ExitCodeOf(end.started ? EndReason::kBroken : EndReason::kRejected,
                                            config_.job.exit_codes));
    if (!end.started) return EndAll();
    if (static_cast<int>(hosts_.size()) - failed_ < config_.job.min_nodes) LimitTooFew(host.slots->name);
  }

  void LimitTooFew(const std::string& name) {
    if (ending_) return;
    too_few_.expires_after(kTooFewLimit);
    too_few_.async_wait([this, name](const boost::system::error_code& error) {
      if (error || ending_) return;
      log_.Say(absl::StrCat("after the end of ", name, ", fewer than ",
                            Counted(config_.job.min_nodes, "host"),
                            " (the minimum of --nnodes) are left: ending the job"));
      EndAll();
    });
  }

  void SetExitCode(int code) {
    if (exit_code_ == 0) exit_code_ = code;
  }

  void Finish() {
    if (std::exchange(finished_, true)) return;
    if (signo_) SetExitCode(ExitCodeOf(ReasonOfSignal(*signo_), config_.job.exit_codes));
    for (asio::steady_timer* timer : {&start_limit_, &end_limit_, &still_here_, &too_few_}) timer->cancel();
    console_.Flush(kFlushLimit, [this] { io_.stop(); });
  }

  const HostsConfig& config_;
  StartMessage message_;
  AgentLog& log_;
  const std::string binary_;
  asio::io_context io_{1};
  Console console_;
  asio::signal_set signals_;
  asio::signal_set children_;
  asio::steady_timer start_limit_;
  asio::steady_timer end_limit_;
  asio::steady_timer still_here_;
  asio::steady_timer too_few_;
  std::vector<Host> hosts_;  // empty until StartAll
  size_t started_ = 0;       // number of hosts whose agents have read their messages
  int running_ = 0;          // number of ssh processes
  int failed_ = 0;           // number of hosts that have ended with a failure
  int num_signals_ = 0;
  std::optional<int> signo_;  // the first signal that ends the job
  bool ending_ = false;       // all hosts are to end
  bool finished_ = false;
  int exit_code_ = 0;
};

std::string DryStart(const HostsConfig& config, const StartMessage& message) {
  std::string text = "# ddprun --dry-run: nothing is started.\n#\n";
  absl::StrAppend(&text, "# Each command gets on stdin: the arguments, the working directory ",
                  message.directory, ",\n# and ",
                  Counted(static_cast<int64_t>(message.environment.size()), "variable"),
                  " of the environment: ",
                  absl::StrJoin(message.environment, " ",
                                [](std::string* out, const auto& variable) { *out += variable.first; }),
                  "\n");
  for (size_t i = 0; i < config.hosts.size(); ++i) {
    const HostSlots& host = config.hosts[i];
    absl::StrAppend(&text, "\n# node ", i, ": ", host.name, ", ",
                    host.slots > 0 ? Counted(host.slots, "slot") : std::string("no slots given"), "\n",
                    absl::StrJoin(SshCommand(config.ssh, host, OwnPath()), " ",
                                  [](std::string* out, const std::string& word) { *out += ShellWord(word); }),
                    "\n");
  }
  return text;
}

}  // namespace

int RunStarter(const HostsConfig& config, const std::vector<std::string>& arguments, AgentLog& log) {
  for (const std::string& warning : config.job.warnings) log.Say(warning);
  std::error_code error;
  StartMessage message{.arguments = arguments,
                       .directory = std::filesystem::current_path(error).string(),
                       .environment = SentEnvironment(environ),
                       .hosts = config.hosts,
                       .run_id = config.run_id};
  if (error) {
    log.Say(
        absl::StrCat("the working directory cannot be used: ", error.message(), ": change to another one"));
    return ExitCodeOf(EndReason::kRejected, config.job.exit_codes);
  }
  if (config.job.dry_run) return PrintOut(DryStart(config, message));
  return Starter(config, std::move(message), log).Run();
}

}  // namespace ddprun
