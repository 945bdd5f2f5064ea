// HOST[:PORT], as written on the command line.
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
//   default_port: used if `text` has none; negative: a port is required.
//   Errors: kInvalidArgument with the expected form.
absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, int default_port);

// Reads a name or address without a port; an IPv6 address with or without brackets.
//   Errors: kInvalidArgument with the expected form.
absl::StatusOr<std::string> ParseHost(absl::string_view text);

// True for 0.0.0.0 (also written 0) and ::, which stand for all addresses of a machine. A server can listen
// on them; a client that connects to one reaches only its own machine.
bool IsUnspecifiedAddress(const std::string& host);

// True for a link-local IPv6 address (fe80::1) without an interface (fe80::1%eth0): it is ambiguous between
// links, so clients cannot connect to it.
bool LacksInterface(const std::string& host);

// "host:port", with brackets around an IPv6 address.
std::string ToString(const Endpoint& endpoint);

}  // namespace ddprun
