// HOST[:PORT], as written on the command line and in messages.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

struct Endpoint {
  std::string host;  // name or address; an IPv6 address has no brackets
  int port = 0;      // 0..65535
  bool operator==(const Endpoint&) const = default;
};

// Reads "host", "host:port", "[IPv6]" or "[IPv6]:port".
//   default_port: used if `text` has no port; negative: a port is required.
//   Errors: kInvalidArgument with the expected form.
absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, int default_port);

// Reads a name or address without a port. An IPv6 address may have brackets.
//   Errors: kInvalidArgument with the expected form.
absl::StatusOr<std::string> ParseHost(absl::string_view text);

// Returns true for 0.0.0.0 (also written 0) and ::, which stand for all addresses of a machine. A server can
// listen on such an address; a client that connects to it reaches only the client's own machine.
bool IsUnspecifiedAddress(const std::string& host);

// Returns true for a link-local IPv6 address without an interface, such as fe80::1 instead of fe80::1%eth0.
// Clients cannot connect to such an address, because it is ambiguous between links.
bool LacksInterface(const std::string& host);

// Returns the name of a host up to its first dot; an address is not shortened.
std::string ShortHostName(const std::string& name);

// Returns "host:port", with brackets around an IPv6 address.
std::string ToString(const Endpoint& endpoint);

}  // namespace ddprun
