// The network interfaces of this machine, their addresses, and which of them a packet takes.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddprun {

struct InterfaceAddress {
  std::string interface;
  std::string address;  // numeric
  bool loopback = false;
};

// Addresses of interfaces that are up, IPv4 before IPv6, else in the order of the system. Link-local IPv6
// addresses, which need a scope, are left out.
std::vector<InterfaceAddress> InterfaceAddresses();

// The first address of `interface`; empty: it is down or has no address; none: there is no such interface.
std::optional<std::string> AddressOfInterface(const std::string& interface);

// The interface with the numeric `address`, which may have a scope ("fe80::1%eth0"), or any loopback one for
// a loopback address; empty: there is none.
std::string InterfaceOfAddress(const std::string& address);

// The address of this machine from which packets to the numeric `address` leave; empty: there is no route.
// Sends nothing.
std::string LocalAddressTowards(const std::string& address);

// The name of this machine.

// Its full name, as in node1.example; the short one where no full one is known. Asks the resolver when the
// machine's own name has no dot, which can take as long as a DNS server that does not answer: ask once, and
// not in front of something urgent.
std::string LocalHostName();

}  // namespace ddprun
