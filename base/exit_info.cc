#include "base/exit_info.h"

#include <sys/wait.h>

#include <csignal>
#include <iterator>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/overloaded.h"

namespace ddprun {
namespace {

// Signal names, indexed by Linux signal number. sigabbrev_np() is not used, because it requires glibc 2.32.
constexpr const char* kSignals[] = {
    nullptr,     "SIGHUP",  "SIGINT",    "SIGQUIT", "SIGILL",   "SIGTRAP", "SIGABRT", "SIGBUS",
    "SIGFPE",    "SIGKILL", "SIGUSR1",   "SIGSEGV", "SIGUSR2",  "SIGPIPE", "SIGALRM", "SIGTERM",
    "SIGSTKFLT", "SIGCHLD", "SIGCONT",   "SIGSTOP", "SIGTSTP",  "SIGTTIN", "SIGTTOU", "SIGURG",
    "SIGXCPU",   "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH", "SIGPOLL", "SIGPWR",  "SIGSYS"};
static_assert(std::size(kSignals) == SIGSYS + 1);

}  // namespace

ExitInfo ExitInfoFromWaitStatus(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return Signaled{.signo = WTERMSIG(wait_status), .core_dumped = WCOREDUMP(wait_status) != 0};
  }
  return Exited{.code = WEXITSTATUS(wait_status)};
}

bool Succeeded(const ExitInfo& exit) {
  const Exited* exited = std::get_if<Exited>(&exit);
  return exited != nullptr && exited->code == 0;
}

bool EndedBySignal(const ExitInfo& exit, int signo) {
  const Signaled* signaled = std::get_if<Signaled>(&exit);
  return signaled != nullptr && signaled->signo == signo;
}

std::optional<int> SignalBehind(const ExitInfo& exit) {
  if (const auto* signaled = std::get_if<Signaled>(&exit)) return signaled->signo;
  const auto* exited = std::get_if<Exited>(&exit);
  if (exited == nullptr || exited->code <= 128 || exited->code > 128 + SIGRTMAX) return std::nullopt;
  return exited->code - 128;
}

int TorchExitCode(const ExitInfo& exit) {
  return std::visit(
      Overloaded{[](const Exited& e) { return e.code; }, [](const Signaled& s) { return -s.signo; },
                 [](const NeverStarted&) { return 1; }, [](const Stuck&) { return 1; },
                 [](const Hung&) { return 1; }},
      exit);
}

std::string SignalName(int signo) {
  if (signo > 0 && signo <= SIGSYS) return kSignals[signo];
  if (signo == SIGRTMIN) return "SIGRTMIN";
  if (signo > SIGRTMIN && signo <= SIGRTMAX) return absl::StrCat("SIGRTMIN+", signo - SIGRTMIN);
  return absl::StrCat("signal ", signo);
}

std::string ToString(const ExitInfo& exit) {
  return std::visit(
      Overloaded{
          [](const Exited& e) { return absl::StrCat("exit code ", e.code); },
          [](const Signaled& s) {
            return absl::StrCat(SignalName(s.signo), s.core_dumped ? " (core dumped)" : "");
          },
          [](const NeverStarted& n) {
            return absl::StrCat("never started: ", std::string(n.status.message()));
          },
          [](const Stuck& s) { return absl::StrCat("stuck ", s.where); },
          [](const Hung& h) { return absl::StrCat("hung", h.finding.empty() ? "" : ": ", h.finding); }},
      exit);
}

}  // namespace ddprun
