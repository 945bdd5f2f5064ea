#include "net/local_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/match.h"

namespace ddprun {
namespace {

constexpr char kMappedPrefix[] = "::ffff:";

std::string Text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  }
  return text;
}

bool IsLoopbackAddress(const std::string& address) {
  in_addr v4;
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

// Converts an IPv4-mapped IPv6 address, which dual-stack sockets report, to IPv4: "::ffff:10.0.0.1" becomes
// "10.0.0.1". Returns any other address unchanged.
std::string Unmapped(const std::string& address) {
  const bool mapped = address.starts_with(kMappedPrefix) && address.find('.') != std::string::npos;
  return mapped ? address.substr(sizeof(kMappedPrefix) - 1) : address;
}

}  // namespace

std::vector<InterfaceAddress> InterfaceAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family || (i->ifa_flags & IFF_UP) == 0)
        continue;
      const std::string text = Text(i->ifa_addr);
      if (!text.starts_with("fe80:"))
        addresses.push_back({i->ifa_name, text, (i->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  return addresses;
}

std::optional<std::string> AddressOfInterface(const std::string& interface) {
  if (if_nametoindex(interface.c_str()) == 0) return std::nullopt;
  for (const InterfaceAddress& each : InterfaceAddresses()) {
    if (each.interface == interface) return each.address;
  }
  return "";
}

std::string InterfaceOfAddress(const std::string& address) {
  if (const size_t scope = address.find('%'); scope != std::string::npos) return address.substr(scope + 1);
  const std::string wanted = Unmapped(address);
  const bool loopback = IsLoopbackAddress(wanted);
  for (const InterfaceAddress& each : InterfaceAddresses()) {
    if (each.address == wanted || (loopback && each.loopback)) return each.interface;
  }
  return "";
}

std::string LocalAddressTowards(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  // Connecting a datagram socket selects a route and sends no packet, so the port does not matter.
  if (getaddrinfo(Unmapped(address).c_str(), "9", &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  char text[NI_MAXHOST] = "";  // includes the scope, which a link-local address needs
  const bool routed = connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                      getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) == 0 &&
                      getnameinfo(reinterpret_cast<const sockaddr*>(&local), size, text, sizeof text, nullptr,
                                  0, NI_NUMERICHOST) == 0;
  close(fd);
  return routed ? text : "";
}

std::string LocalHostName() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "localhost";
  if (absl::StrContains(name, '.')) return name;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  if (getaddrinfo(name, nullptr, &hints, &found) != 0) return name;
  std::string full = found->ai_canonname != nullptr ? found->ai_canonname : "";
  freeaddrinfo(found);
  // Some hosts map their own name to localhost.localdomain, which other hosts cannot use.
  if (!absl::StrContains(full, '.') || absl::StartsWith(full, "localhost")) return name;
  return full;
}

}  // namespace ddprun
