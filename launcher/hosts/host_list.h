// The hosts of --hosts: "node1:8,user@node2:8,[fd00::1]".
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct HostSlots {
  std::string login = {};  // what ssh connects to: "user@node1", "fd00::1"
  std::string name = {};   // the same without the user: "node1"
  int slots = 0;           // number of workers; 0: not given

  bool operator==(const HostSlots&) const = default;
};

// Parses HOST[:SLOTS],... where HOST is a name, an alias of ssh's configuration, or an address, with or without "user@". An
// IPv6 address is in brackets.
//   Errors: kInvalidArgument: no hosts, an empty or malformed host, 0 slots or more than 16384, a host given twice, a loopback
//           address among several hosts, more than 1024 hosts. The message has the entry and the expected form, but not the
//           name of the option.
absl::StatusOr<std::vector<HostSlots>> ParseHosts(absl::string_view text);

}  // namespace ddprun
