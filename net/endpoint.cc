#include "net/endpoint.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

absl::Status Bad(absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", want));
}

// True if `host` contains a character that is invalid in names and addresses.
bool HasBadCharacters(absl::string_view host) {
  return std::any_of(host.begin(), host.end(),
                     [](unsigned char c) { return c <= ' ' || c == ',' || c == '/' || c == 0x7f; });
}

// True for an IPv6 address, with or without a '%' and an interface after it.
bool IsIpv6(absl::string_view text) {
  in6_addr ignored;
  return inet_pton(AF_INET6, std::string(text.substr(0, text.find('%'))).c_str(), &ignored) == 1;
}

}  // namespace

absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text, int default_port) {
  absl::string_view host = text, port;
  bool has_port = false;
  if (absl::StartsWith(text, "[")) {
    const size_t end = text.find(']');
    if (end == absl::string_view::npos) return Bad("a ']' after the IPv6 address");
    host = text.substr(1, end - 1);
    absl::string_view rest = text.substr(end + 1);
    has_port = absl::ConsumePrefix(&rest, ":");
    if (!has_port && !rest.empty()) return Bad("':' and a port after the IPv6 address");
    port = rest;
  } else if (const auto colons = std::count(text.begin(), text.end(), ':'); colons > 1) {
    return Bad("an IPv6 address in brackets: [ADDR]:PORT");
  } else if (colons == 1) {
    has_port = true;
    host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':') + 1);
  }
  if (host.empty() || HasBadCharacters(host)) return Bad("HOST:PORT, one host name or address");
  Endpoint endpoint = {.host = std::string(host), .port = default_port};
  if (has_port) {
    if (!absl::SimpleAtoi(port, &endpoint.port) || endpoint.port < 0 || endpoint.port > 65535) {
      return Bad("a port from 0 to 65535 after the ':'");
    }
  } else if (default_port < 0) {
    return Bad("a port as well: HOST:PORT");
  }
  return endpoint;
}

absl::StatusOr<std::string> ParseHost(absl::string_view text) {
  absl::string_view host = text;
  if (absl::ConsumePrefix(&host, "[") && (!absl::ConsumeSuffix(&host, "]") || !IsIpv6(host))) {
    return Bad("an IPv6 address in the brackets, and nothing after them");
  }
  if (host.empty() || HasBadCharacters(host)) return Bad("one host name or address");
  if (absl::StrContains(host, ':') && !IsIpv6(host)) return Bad("a host name or address, without a port");
  return std::string(host);
}

bool IsUnspecifiedAddress(const std::string& host) {
  if (in_addr v4; inet_aton(host.c_str(), &v4) == 1) return v4.s_addr == INADDR_ANY;
  in6_addr v6;
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_UNSPECIFIED(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr32[3] == INADDR_ANY);
}

bool LacksInterface(const std::string& host) {
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LINKLOCAL(&v6);
}

std::string ShortHostName(const std::string& name) {
  if (name.find_first_not_of("0123456789.") == std::string::npos || absl::StrContains(name, ':')) return name;
  return name.substr(0, name.find('.'));
}

std::string ToString(const Endpoint& endpoint) {
  if (absl::StrContains(endpoint.host, ':')) return absl::StrCat("[", endpoint.host, "]:", endpoint.port);
  return absl::StrCat(endpoint.host, ":", endpoint.port);
}

}  // namespace ddprun
