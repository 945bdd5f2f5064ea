// The network interfaces, addresses, routes and name of this host.
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

// Returns the addresses of the interfaces that are up. IPv4 addresses precede IPv6 addresses; addresses of
// the same family are in the order in which the system lists them. Excludes link-local IPv6 addresses,
// because they are not usable without a scope.
std::vector<InterfaceAddress> InterfaceAddresses();

// Returns the first address of `interface`, "" if the interface is down or has no address, or nullopt if the
// interface does not exist.
std::optional<std::string> AddressOfInterface(const std::string& interface);

// Returns the interface that has the numeric `address`, or "" if there is none. If the address has a scope
// ("fe80::1%eth0"), returns the scope. For any loopback address, returns a loopback interface.
std::string InterfaceOfAddress(const std::string& address);

// Returns the source address of packets from this host to the numeric `address`, or "" if there is no route.
// Sends no packet.
std::string LocalAddressTowards(const std::string& address);

// Returns the fully qualified name of this host, such as node1.example. If this name is unknown, returns the
// short name, or "localhost" if the host name cannot be read. If the host name has no dot, this function
// queries the resolver and may block until DNS times out, so do not call it on a time-critical path.
std::string LocalHostName();

}  // namespace ddprun
