#include "launcher/hosting.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

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

// Addresses of interfaces that are up, IPv4 first; link-local ones, which need a scope, left out.
std::vector<std::string> InterfaceAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<std::string> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family || (i->ifa_flags & IFF_UP) == 0)
        continue;
      const std::string text = Text(i->ifa_addr);
      if (!text.starts_with("fe80:")) addresses.push_back(text);
    }
  }
  return addresses;
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Null: it does not resolve.
AddressList ResolveAs(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) list = nullptr;
  return {list, &freeaddrinfo};
}

// True if one of them is an address of this machine.
bool IsOurs(const AddressList& list) {
  const std::vector<std::string> own = InterfaceAddresses();
  for (const addrinfo* a = list.get(); a != nullptr; a = a->ai_next) {
    const std::string text = Text(a->ai_addr);
    if (IsLoopback(text) || std::find(own.begin(), own.end(), text) != own.end()) return true;
  }
  return false;
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

bool Resolves(const std::string& host) { return ResolveAs(host, 0) != nullptr; }

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
  for (const std::string& address : InterfaceAddresses()) {
    if (!IsLoopback(address)) return address;
  }
  return "127.0.0.1";
}

}  // namespace ddprun
