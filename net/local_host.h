// The network interfaces and addresses of this machine, the route to an address, and the host name.
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

// Addresses of interfaces that are up: IPv4 before IPv6, otherwise in system order. Excludes link-local IPv6
// addresses, which need a scope.
std::vector<InterfaceAddress> InterfaceAddresses();

// Returns the first address of `interface`, "" if the interface is down or has no address, or nullopt if
// there is no such interface.
std::optional<std::string> AddressOfInterface(const std::string& interface);

// The interface that has the numeric `address`, which may have a scope ("fe80::1%eth0"). Every loopback
// address maps to a loopback interface. Empty: no interface has the address.
std::string InterfaceOfAddress(const std::string& address);

// The source address of packets from this machine to the numeric `address`; empty: no route. Sends nothing.
std::string LocalAddressTowards(const std::string& address);

// The full name of this machine, such as node1.example, or the short name if no full name is known. If the
// host name has no dot, this queries the resolver, which may block until DNS times out. Call it once, and not
// on a time-critical path.
std::string LocalHostName();

}  // namespace ddprun
