// Whether the coordinator's host, as given on the command line, is this machine, and at which address other
// nodes reach this machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// True for "localhost" and loopback addresses.
bool IsLoopback(absl::string_view host);

// The numeric address that a server known as `host` should listen on: the loopback address if `host` is
// loopback, so that only this machine can connect; else empty, which means all addresses, since this machine
// may have more addresses than the one that `host` resolves to.
std::string ListenAddress(absl::string_view host);

// True for addresses, false for names.
bool IsNumericAddress(const std::string& host);

// Does not block. True if `host` is empty, loopback, this machine's name, or the address of one of this
// machine's interfaces; false for any other address; nullopt for any other name, which needs a name lookup.
std::optional<bool> IsThisMachineAtOnce(const std::string& host);

// Like IsThisMachineAtOnce, but resolves other names: true if `host` has an address of this machine, false
// otherwise, including if `host` does not resolve. Blocks until the name server answers.
bool IsThisMachine(const std::string& host);

// The numeric addresses of `host`, a name or an address; empty if `host` does not resolve. Blocks until the
// name server answers.
std::vector<std::string> AddressesOf(const std::string& host);

// The first address of this machine that is not loopback, IPv4 before IPv6; "127.0.0.1" if there is none.
std::string AddressOfThisMachine();

}  // namespace ddprun
