#include <climits>
#include <csignal>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/exit_info.h"
#include "base/status_macros.h"
#include "launcher/cli/option_table.h"
#include "launcher/cli/option_values.h"
#include "launcher/config/option_groups.h"

namespace ddprun {
namespace {

absl::Status ReadShutdownTimeout(const Options& options, const ProcessInputs& inputs, LaunchConfig& config) {
  constexpr char kVariable[] = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
  constexpr char kWant[] = "whole seconds, 0 or more";
  int number = 30;
  if (options.IsGiven("shutdown-timeout")) {
    ASSIGN_OR_RETURN(number, WholeNumber(options, "shutdown-timeout", 0, INT_MAX, kWant));
  } else if (const auto text = inputs.get_env(kVariable); text && !text->empty()) {
    ASSIGN_OR_RETURN(number, WholeNumber(kVariable, *text, 0, INT_MAX, kWant));
  }
  config.shutdown_timeout = ClampedSeconds(number);
  return absl::OkStatus();
}

// Returns the names of all signals, indexed by number; empty for a number without a name.
std::vector<std::string> SignalNames() {
  std::vector<std::string> names(static_cast<size_t>(SIGRTMAX) + 1);
  for (int signo = 1; signo <= SIGSYS; ++signo) names[static_cast<size_t>(signo)] = SignalName(signo);
  names[static_cast<size_t>(SIGRTMIN)] = "SIGRTMIN";
  names.back() = "SIGRTMAX";
  return names;
}

// Ignores unknown names, like torchrun, but adds a warning.
absl::Status ReadSignals(const Options& options, LaunchConfig& config) {
  const std::vector<std::string> names = SignalNames();
  config.signals_to_handle.clear();
  for (const absl::string_view part : absl::StrSplit(options.Get("signals-to-handle"), ',')) {
    const absl::string_view name = absl::StripAsciiWhitespace(part);
    const auto it = name.empty() ? names.end() : absl::c_find(names, name);
    if (it == names.end()) {
      std::vector<absl::string_view> known;
      absl::c_copy_if(names, std::back_inserter(known), [](const std::string& n) { return !n.empty(); });
      const std::string upper = absl::AsciiStrToUpper(name);
      const absl::string_view nearest =
          Nearest(absl::StartsWith(upper, "SIG") ? upper : absl::StrCat("SIG", upper), known);
      config.warnings.push_back(absl::StrCat(
          options.Quote("signals-to-handle"), ": there is no signal \"", name, "\"; it is ignored.",
          nearest.empty() ? "" : absl::StrCat(" Did you mean ", nearest, "?")));
      continue;
    }
    const auto signo = static_cast<int>(it - names.begin());
    for (const int never : {SIGKILL, SIGSTOP, SIGCHLD, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
      if (signo == never) {
        return BadValue(options, "signals-to-handle",
                        absl::StrCat("signals that request termination, not ", name));
      }
    }
    if (!absl::c_linear_search(config.signals_to_handle, signo)) config.signals_to_handle.push_back(signo);
  }
  return absl::OkStatus();
}

// A notice without a number of seconds has this length.
constexpr Duration kDefaultNotice = seconds(60);

// A signal that is a notice does not end the job, so it is taken from the default of --signals-to-handle.
absl::Status ReadPreemptSignals(const Options& options, LaunchConfig& config) {
  if (!options.IsGiven("preempt-signal")) return absl::OkStatus();
  const auto bad = [&options](absl::string_view part, absl::string_view want) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.Quote("preempt-signal"), ": \"", part, "\": expected ", want));
  };
  for (const absl::string_view untrimmed : absl::StrSplit(options.Get("preempt-signal"), ',')) {
    const absl::string_view part = absl::StripAsciiWhitespace(untrimmed);
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(part, absl::MaxSplits('@', 1));
    PreemptSignal signal{.left = kDefaultNotice};
    for (const int known : {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2}) {
      const std::string name = SignalName(known);  // Slurm writes it without SIG
      if (name == halves.first || name == absl::StrCat("SIG", halves.first)) signal.signo = known;
    }
    if (signal.signo == 0) {
      return bad(part, "SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1 or SIGUSR2, such as SIGUSR1 or SIGUSR1@60");
    }
    if (absl::StrContains(part, '@')) {
      double number;
      if (!absl::SimpleAtod(halves.second, &number) || !(number > 0)) {
        return bad(part,
                   "the seconds until this node goes away after the @, more than 0, such as SIGUSR1@60");
      }
      signal.left = ClampedSeconds(number);
    }
    for (const PreemptSignal& other : config.preempt_signals) {
      if (other.signo == signal.signo) return bad(part, "each signal once");
    }
    const auto handled = absl::c_find(config.signals_to_handle, signal.signo);
    if (handled != config.signals_to_handle.end()) {
      if (options.IsGiven("signals-to-handle")) {
        return bad(part, absl::StrCat("no signal that ends the job: ", options.Quote("signals-to-handle")));
      }
      config.signals_to_handle.erase(handled);
    }
    config.preempt_signals.push_back(signal);
  }
  return absl::OkStatus();
}

absl::Status ReadNumaBinding(const Options& options, LaunchConfig& config) {
  const struct {
    const char* name;
    NumaBinding binding;
  } kBindings[] = {{"node", NumaBinding::kNode},
                   {"socket", NumaBinding::kSocket},
                   {"exclusive", NumaBinding::kExclusive},
                   {"core-complex", NumaBinding::kCoreComplex}};
  if (!options.IsGiven("numa-binding")) return absl::OkStatus();
  for (const auto& known : kBindings) {
    if (options.Get("numa-binding") == known.name) config.numa_binding = known.binding;
  }
  if (config.numa_binding) return absl::OkStatus();
  return BadValue(options, "numa-binding", "node, socket, exclusive or core-complex");
}

// A value that is not a number means 0 (off), as in torchrun, but adds a warning.
void ReadUninterruptibleTimeout(const ProcessInputs& inputs, LaunchConfig& config) {
  constexpr char kVariable[] = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";
  const std::optional<std::string> text = inputs.get_env(kVariable);
  if (!text || text->empty()) return;
  double number;
  if (!absl::SimpleAtod(*text, &number)) {
    config.warnings.push_back(absl::StrCat(kVariable, "=", *text, " is ignored: expected seconds"));
  } else if (number > 0) {
    config.uninterruptible_timeout = ClampedSeconds(number);
  }
}

absl::Status ReadExitCodes(const Options& options, LaunchConfig& config) {
  const std::string& text = options.Get("exit-codes");
  if (text != "torchrun" && text != "scheduler") {
    return BadValue(options, "exit-codes", "torchrun or scheduler");
  }
  config.exit_codes = text == "torchrun" ? ExitCodes::kTorchrun : ExitCodes::kScheduler;
  return absl::OkStatus();
}

absl::Status CheckProgramGiven(const Options& options) {
  if (options.IsSet("module") && options.IsSet("no-python") && !options.IsSet("run-path")) {
    return absl::InvalidArgumentError("--module and --no-python cannot be used together");
  }
  if (options.program().empty()) {
    return absl::InvalidArgumentError("no program given: ddprun [options] PROGRAM [ARGUMENT...]");
  }
  if (options.program()[0].empty()) {
    return absl::InvalidArgumentError("the program name is empty: is a shell variable unset?");
  }
  return absl::OkStatus();
}

ProgramKind KindOfProgram(const Options& options) {
  if (options.IsSet("run-path")) return ProgramKind::kRunPath;
  if (options.IsSet("module")) return ProgramKind::kModule;
  return options.IsSet("no-python") ? ProgramKind::kNoPython : ProgramKind::kAuto;
}

}  // namespace

absl::Status ReadWorkers(const Options& options, const ProcessInputs& inputs, LaunchConfig& config) {
  RETURN_IF_ERROR(CheckProgramGiven(options));
  ASSIGN_OR_RETURN(config.role, Name(options, "role"));
  double interval;
  if (!absl::SimpleAtod(options.Get("monitor-interval"), &interval) || !(interval > 0)) {
    return BadValue(options, "monitor-interval", "seconds, more than 0");
  }
  const std::string& method = options.Get("start-method");
  if (method != "spawn" && method != "fork" && method != "forkserver") {
    return BadValue(options, "start-method", "spawn, fork or forkserver");
  }
  RETURN_IF_ERROR(ReadShutdownTimeout(options, inputs, config));
  RETURN_IF_ERROR(ReadSignals(options, config));
  RETURN_IF_ERROR(ReadPreemptSignals(options, config));
  RETURN_IF_ERROR(ReadNumaBinding(options, config));
  ASSIGN_OR_RETURN(config.rules, ReadJobRules(options, config.min_nodes, config.max_nodes));
  RETURN_IF_ERROR(ReadExitCodes(options, config));
  ReadUninterruptibleTimeout(inputs, config);
  config.virtual_local_rank = options.IsSet("virtual-local-rank");
  config.pass_local_rank = options.IsSet("pass-local-rank") && !options.IsSet("use-env");
  config.program_env = options.program_env();
  return absl::OkStatus();
}

absl::Status ReadProgram(const Options& options, const ProcessInputs& inputs, LaunchConfig& config) {
  ASSIGN_OR_RETURN(
      config.program,
      FindProgram(options.program(), KindOfProgram(options),
                  {.cwd = inputs.cwd, .ddprun_dir = inputs.ddprun_dir, .get_env = inputs.get_env}));
  return absl::OkStatus();
}

}  // namespace ddprun
