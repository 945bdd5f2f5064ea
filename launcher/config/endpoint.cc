#include "launcher/config/endpoint.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ddprun {

absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, int default_port) {
  const auto bad = [](absl::string_view want) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", want));
  };
  absl::string_view host = text, port;
  bool has_port = false;
  if (absl::StartsWith(text, "[")) {
    const size_t end = text.find(']');
    if (end == absl::string_view::npos) return bad("a ']' after the IPv6 address");
    host = text.substr(1, end - 1);
    absl::string_view rest = text.substr(end + 1);
    has_port = absl::ConsumePrefix(&rest, ":");
    if (!has_port && !rest.empty()) return bad("':' and a port after the IPv6 address");
    port = rest;
  } else if (const auto colons = std::count(text.begin(), text.end(), ':'); colons > 1) {
    return bad("an IPv6 address in brackets: [ADDR]:PORT");
  } else if (colons == 1) {
    has_port = true;
    host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':') + 1);
  }
  const auto odd = [](unsigned char c) { return c <= ' ' || c == ',' || c == '/' || c == 0x7f; };
  if (host.empty() || std::any_of(host.begin(), host.end(), odd))
    return bad("HOST:PORT, one host name or address");
  Endpoint endpoint = {.host = std::string(host), .port = default_port};
  if (has_port) {
    if (!absl::SimpleAtoi(port, &endpoint.port) || endpoint.port < 0 || endpoint.port > 65535) {
      return bad("a port from 0 to 65535 behind the ':'");
    }
  } else if (default_port < 0) {
    return bad("a port too: HOST:PORT");
  }
  return endpoint;
}

std::string ToString(const Endpoint& endpoint) {
  if (absl::StrContains(endpoint.host, ':')) return absl::StrCat("[", endpoint.host, "]:", endpoint.port);
  return absl::StrCat(endpoint.host, ":", endpoint.port);
}

}  // namespace ddprun
