// The main program of ddprun. If it is invoked under the name ddpctl, it runs ddpctl.

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/stubs/logging.h"
#include "launcher/cli/completion.h"
#include "launcher/cli/option_help.h"
#include "launcher/config/driver_call.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/process_inputs.h"
#include "launcher/ctl/ctl.h"
#include "launcher/find_leader.h"
#include "launcher/held_signals.h"
#include "launcher/hosts/remote_end.h"
#include "launcher/hosts/starter.h"
#include "launcher/launch.h"
#include "launcher/print_out.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/warden.h"
#include "launcher/report/own_error.h"
#include "launcher/store_only.h"
#include "net/endpoint.h"

namespace {

constexpr char kVersion[] = "ddprun 0.1.0\n";

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return ddprun::ShortHostName(name);
}

std::string Env(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

// An agent with one worker has about 20 files open.
constexpr rlim_t kFewestFiles = 32;

// Raises the soft limit on open files to the hard limit, because each worker of the job may hold a few
// connections to a store in this process. Returns the hard limit, or RLIM_INFINITY if it is unknown. Workers
// keep the original limit: the warden, which starts them, was forked earlier.
rlim_t RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return RLIM_INFINITY;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_max;
}

// The warden exits when its socket is closed.
void EndWarden(ddprun::WardenHandle& warden) {
  warden.socket.Reset();
  waitpid(warden.pid, nullptr, 0);
}

// `from_starter`: see ProcessInputs.
int Main(const std::vector<std::string>& args, std::optional<ddprun::ScheduledJob> from_starter,
         ddprun::WardenHandle warden, rlim_t most_files) {
  using namespace ddprun;
  const std::string host = HostName();
  AgentLog log(host, Env("LOGLEVEL"));
  ProcessInputs inputs = InputsOfThisProcess([&log](absl::string_view text) { log.Say(text); });
  inputs.from_starter = std::move(from_starter);
  const absl::StatusOr<Command> command = ParseCommand(args, inputs);
  if (!command.ok()) {
    const bool usage = absl::IsInvalidArgument(command.status());
    if (usage) fputs(UsageLine().c_str(), stderr);
    fprintf(stderr, "ddprun: error: %s\n", std::string(command.status().message()).c_str());
    if (usage) {
      fprintf(stderr, "ddprun: see ddprun --help\n");
      return 2;
    }
    OwnErrorFile(Env("TORCHELASTIC_ERROR_FILE"), [&log](const std::string& text) {
      log.Say(text);
    }).LeaveReason(EndReason::kRejected, command.status().message(), std::time(nullptr));
    return 1;
  }
  if (std::holds_alternative<ShowHelp>(*command)) return PrintOut(HelpText());
  if (const auto* completion = std::get_if<ShowCompletion>(&*command))
    return PrintOut(CompletionScript(completion->shell));
  if (std::holds_alternative<ShowVersion>(*command)) return PrintOut(kVersion);
  if (most_files < kFewestFiles) {
    fprintf(
        stderr,
        "ddprun: error: only %llu files may be open here, but at least %llu are needed: raise the hard limit "
        "of open files (ulimit -Hn)\n",
        static_cast<unsigned long long>(most_files), static_cast<unsigned long long>(kFewestFiles));
    return 1;
  }
  if (const auto* store = std::get_if<StoreConfig>(&*command)) {
    EndWarden(warden);  // it is not needed without workers
    return RunStoreOnly(*store, log);
  }
  if (const auto* hosts = std::get_if<HostsConfig>(&*command)) {
    EndWarden(warden);
    return RunStarter(*hosts, args, log);
  }
  if (!ProcShowsThisProcess()) {
    log.Say(
        "/proc is not mounted, or not for this pid namespace: unkillable processes are not described, OOM "
        "kills are not explained, and watchdog timers are rejected");
  }
  return Launch(std::get<LaunchConfig>(*command), log, host, std::move(warden));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  const absl::string_view name = argv[0];
  if (name.substr(name.rfind('/') + 1) == "ddpctl") return ddprun::RunCtl(args, ddprun::FindLeaderOnEtcd);
  ddprun::HoldSignals();
  ddprun::RemoteStart remote;
  const bool is_remote = args == std::vector<std::string>{"--from-starter"};
  if (is_remote) {
    google::protobuf::SetLogHandler(nullptr);
    absl::StatusOr<ddprun::RemoteStart> received = ddprun::ReceiveStart();
    if (!received.ok()) {
      fprintf(stderr, "ddprun: error: %s\n", std::string(received.status().message()).c_str());
      return 1;
    }
    remote = *std::move(received);
    args = remote.arguments;
  }
  // The warden is forked without exec, so it must be started before this process has a second thread.
  ddprun::WardenHandle warden = ddprun::StartWarden();
  const rlim_t most_files = RaiseDescriptorLimit();
  // A write to a closed pipe, or beyond the file size limit (ulimit -f), must fail rather than kill the
  // launcher.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  // Silence Protobuf's log lines about invalid messages; the code that receives such messages handles them.
  google::protobuf::SetLogHandler(nullptr);
  int exit_code = 1;
  try {
    std::optional<ddprun::ScheduledJob> from_starter;
    if (is_remote) {
      ddprun::FollowLifeLine(std::move(remote.life_line));
      from_starter = std::move(remote.job);
    }
    exit_code = Main(args, std::move(from_starter), std::move(warden), most_files);
  } catch (const std::exception& error) {  // usually from Asio: out of file descriptors
    fprintf(stderr, "ddprun: error: %s\n", error.what());
  }
  if (ddprun::InDriverCall()) {
    fflush(nullptr);
    _exit(exit_code);
  }
  return exit_code;
}
