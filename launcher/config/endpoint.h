// HOST[:PORT], as the command line and the coordinator's users write it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct Endpoint {
  std::string host;  // name or address, an IPv6 address without its brackets
  int port = 0;      // 0..65535
  bool operator==(const Endpoint&) const = default;
};

// Reads "host", "host:port", "[IPv6]" or "[IPv6]:port".
//   default_port: used when there is none; negative: one is required.
//   Errors: kInvalidArgument with what is expected.
absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, int default_port);

// Reads a name or address alone; an IPv6 address with or without brackets.
//   Errors: kInvalidArgument with what is expected.
absl::StatusOr<std::string> ParseHost(absl::string_view text);

// True for the addresses that stand for all of a machine's own: 0.0.0.0, also written 0, and ::. A server can
// listen on them; a client that connects to one only reaches its own machine.
bool IsUnspecifiedAddress(const std::string& host);

// True for a link-local IPv6 address (fe80::1) without an interface (fe80::1%eth0): every link has such
// addresses, so that nobody can connect to it.
bool LacksInterface(const std::string& host);

// "host:port", with brackets around an IPv6 address.
std::string ToString(const Endpoint& endpoint);

}  // namespace ddprun
