#include "launcher/hosts/ssh_command.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/exit_info.h"
#include "launcher/config/program.h"

namespace ddprun {
namespace {

constexpr int kNotFound = 127, kNotExecutable = 126;

std::string Command(const std::vector<std::string>& words) {
  return absl::StrJoin(words, " ",
                       [](std::string* out, const std::string& word) { *out += ShellWord(word); });
}

// What to do about an error of ssh, by the text that OpenSSH prints.
std::string Remedy(const HostSlots& host, const std::string& line, const std::string& try_it) {
  if (absl::StrContains(line, "Host key verification failed")) {
    return absl::StrCat("ssh does not know the host key of ", host.name, ", or the key has changed: run `",
                        try_it, "` once and confirm the key, or add it with `ssh-keyscan ", host.name,
                        " >>~/.ssh/known_hosts`");
  }
  if (absl::StrContains(line, "Permission denied")) {
    return absl::StrCat("log in without a password: copy a key with `ssh-copy-id ", host.login,
                        "`, or load it with `ssh-add`; `", try_it, "` must work");
  }
  if (absl::StrContains(line, "Could not resolve hostname")) {
    return absl::StrCat("check the name in --hosts, and HostName in ssh's configuration; `", try_it,
                        "` must work");
  }
  return absl::StrCat("`", try_it, "` must work: check that the host is up and runs sshd");
}

}  // namespace

std::vector<std::string> SshCommand(const std::vector<std::string>& ssh, const HostSlots& host,
                                    const std::string& binary) {
  std::vector<std::string> argv = ssh;
  const std::string seconds = absl::StrCat(kConnectSeconds);
  // BatchMode makes a question, such as for a password, an error. A pty would mix stdout and stderr. Forwardings of ssh's
  // configuration could fail because their ports are in use.
  for (const std::string& option :
       {std::string("BatchMode=yes"), "ConnectTimeout=" + seconds, "ServerAliveInterval=" + seconds,
        std::string("ServerAliveCountMax=3"), std::string("ClearAllForwardings=yes")}) {
    argv.emplace_back("-o");
    argv.push_back(option);
  }
  argv.insert(argv.end(), {"-T", host.login, ShellWord(binary), "--from-starter"});
  return argv;
}

std::string SshFailure(const HostSlots& host, const SshEnd& end, const std::vector<std::string>& ssh,
                       const std::string& binary) {
  const std::string try_it = absl::StrCat(Command(ssh), " ", host.login, " true");
  const std::string said =
      end.last_line.empty() ? "" : absl::StrCat(": ", absl::StripSuffix(end.last_line, "."));
  if (end.signal != 0) return absl::StrCat(host.name, ": ssh was killed by ", SignalName(end.signal));
  if (end.started && end.exit_code == kSshFailed) {
    return absl::StrCat(host.name, ": the connection was lost, or ddprun there was killed", said);
  }
  if (end.started) return absl::StrCat(host.name, ": ddprun exited with ", end.exit_code);
  switch (end.exit_code) {
    case kSshFailed:
      return absl::StrCat(host.name, ": ssh failed", said, ": ", Remedy(host, end.last_line, try_it));
    case kNotFound:
      return absl::StrCat(
          host.name, ": ", binary, " does not exist there", said,
          ": install ddprun at the same path on all hosts, for example on a shared file system");
    case kNotExecutable:
      return absl::StrCat(host.name, ": ", binary, " cannot be executed there", said,
                          ": check its permissions, and that the host has the same architecture");
    default:
      return absl::StrCat(host.name, ": ddprun did not start, exit code ", end.exit_code, said);
  }
}

}  // namespace ddprun
