#include "launcher/hosting.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <functional>
#include <memory>

#include "absl/strings/match.h"

namespace ddprun {
namespace {

std::string Text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  }
  return text;
}

// Calls `visit` with each address of each interface that is up, IPv4 addresses first.
void ForEachOwnAddress(const std::function<void(const sockaddr&)>& visit) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family || (i->ifa_flags & IFF_UP) == 0)
        continue;
      visit(*i->ifa_addr);
    }
  }
}

bool IsLinkLocal(const sockaddr& address) {
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

// True if `a` and `b` are the same address. A link-local address is unique only on its link, so the
// interfaces must also match, unless one of them is unspecified.
bool IsSame(const sockaddr& a, const sockaddr& b) {
  if (Text(&a) != Text(&b)) return false;
  if (!IsLinkLocal(a)) return true;
  const uint32_t scope_a = reinterpret_cast<const sockaddr_in6&>(a).sin6_scope_id;
  const uint32_t scope_b = reinterpret_cast<const sockaddr_in6&>(b).sin6_scope_id;
  return scope_a == scope_b || scope_a == 0 || scope_b == 0;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Returns null if `host` does not resolve.
AddressList ResolveAs(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) list = nullptr;
  return {list, &freeaddrinfo};
}

// True if `list` contains an address of this machine.
bool IsOurs(const AddressList& list) {
  bool ours = false;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    ours = ours || IsLoopback(Text(a->ai_addr));
    ForEachOwnAddress([&](const sockaddr& own) { ours = ours || IsSame(own, *a->ai_addr); });
  }
  return ours;
}

}  // namespace

bool IsLoopback(absl::string_view host) {
  const std::string text(host);
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  if (inet_pton(AF_INET6, text.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return absl::EqualsIgnoreCase(host, "localhost");
}

std::string ListenAddress(absl::string_view host) {
  if (!IsLoopback(host)) return "";
  return absl::EqualsIgnoreCase(host, "localhost") ? "127.0.0.1" : std::string(host);
}

std::vector<std::string> AddressesOf(const std::string& host) {
  const AddressList list = ResolveAs(host, 0);
  std::vector<std::string> addresses;
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) addresses.push_back(Text(a->ai_addr));
  return addresses;
}

bool IsNumericAddress(const std::string& host) { return ResolveAs(host, AI_NUMERICHOST) != nullptr; }

std::optional<bool> IsThisMachineAtOnce(const std::string& host) {
  if (host.empty() || IsLoopback(host)) return true;
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) == 0 && host == name) return true;
  const AddressList list = ResolveAs(host, AI_NUMERICHOST);
  if (list == nullptr) return std::nullopt;
  return IsOurs(list);
}

bool IsThisMachine(const std::string& host) {
  return IsThisMachineAtOnce(host).value_or(false) || IsOurs(ResolveAs(host, 0));
}

std::string AddressOfThisMachine() {
  std::string found;
  ForEachOwnAddress([&found](const sockaddr& own) {
    // Other nodes cannot use a link-local address: it needs an interface name, which differs between nodes.
    if (found.empty() && !IsLinkLocal(own) && !IsLoopback(Text(&own))) found = Text(&own);
  });
  return found.empty() ? "127.0.0.1" : found;
}

}  // namespace ddprun
