// The name that ssh's configuration has for an alias.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/hosts/host_list.h"

namespace ddprun {

// Returns the value of "hostname" in the output of `ssh -G`; empty if there is none.
std::string ParseSshHostName(absl::string_view output);

// Returns a name or address by which the other hosts may reach this one: its name in --hosts if it resolves here, else the
// HostName of ssh's configuration, else the name. Blocks while the name is looked up, and for up to 5 s for ssh.
//   ssh: the words of --ssh-command.
std::string ReachableHostName(const std::vector<std::string>& ssh, const HostSlots& host);

}  // namespace ddprun
