// The ssh command of each host of --hosts, and what its exit status means.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/hosts/host_list.h"

namespace ddprun {

// Seconds for a connection, and between two probes of a silent connection, of which three may fail. Options of --ssh-command
// take precedence.
constexpr int kConnectSeconds = 15;

// The exit code of ssh if it failed, or if a signal ended the remote command.
constexpr int kSshFailed = 255;

// Returns the command that starts the agent of a host.
//   ssh:    the words of --ssh-command; not empty.
//   binary: absolute path of ddprun, the same on all hosts.
std::vector<std::string> SshCommand(const std::vector<std::string>& ssh, const HostSlots& host,
                                    const std::string& binary);

// How the ssh process of a host ended.
struct SshEnd {
  int exit_code = 0;           // of the remote command; 255: ssh failed, or a signal ended the remote command
  int signal = 0;              // of ssh itself, not 0 if ssh was killed
  bool started = false;        // the agent had read its message
  std::string last_line = {};  // the last line on stderr, of ssh or of the remote command; may be empty
};

// Returns why a host's agent did not exit with 0: one or two sentences with the name of the host, the cause and the remedy.
//   REQUIRES: end.exit_code != 0 or end.signal != 0.
std::string SshFailure(const HostSlots& host, const SshEnd& end, const std::vector<std::string>& ssh,
                       const std::string& binary);

}  // namespace ddprun
