#include "launcher/hosts/sent_environment.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"

namespace ddprun {
namespace {

constexpr const char* kNotSent[] = {
    "HOME",          "USER",           "LOGNAME",    "SHELL",           "MAIL",       "PWD",
    "OLDPWD",        "SHLVL",          "_",          "HOSTNAME",        "HOST",       "HOSTTYPE",
    "TERM",          "TMUX",           "STY",        "WINDOW",          "WINDOWID",   "LS_COLORS",
    "COLUMNS",       "LINES",          "DISPLAY",    "WAYLAND_DISPLAY", "XAUTHORITY", "NOTIFY_SOCKET",
    "INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_PID",      "TMUX_PANE",
};

// Schedulers describe the node of the starter; the job of --hosts has nodes of its own.
constexpr const char* kNotSentPrefixes[] = {
    "SSH_",  "XDG_",  "DBUS_", "SYSTEMD_", "SLURM_", "SLURMD_", "SBATCH_", "SRUN_",      "SALLOC_",
    "OMPI_", "PMIX_", "PMI_",  "PBS_",     "LSB_",   "LS_JOB",  "LSF_PM_", "BASH_FUNC_",
};

}  // namespace

bool IsSent(absl::string_view variable) {
  return std::find(std::begin(kNotSent), std::end(kNotSent), variable) == std::end(kNotSent) &&
         std::none_of(std::begin(kNotSentPrefixes), std::end(kNotSentPrefixes),
                      [&](const char* prefix) { return absl::StartsWith(variable, prefix); });
}

std::vector<std::pair<std::string, std::string>> SentEnvironment(const char* const* environment) {
  std::vector<std::pair<std::string, std::string>> sent;
  for (; *environment != nullptr; ++environment) {
    const absl::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == absl::string_view::npos || equals == 0 || !IsSent(entry.substr(0, equals))) continue;
    sent.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return sent;
}

}  // namespace ddprun
