// Decides whether the host of the coordinator, as given on the command line, is this machine, and finds the
// address at which other nodes reach this machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// Returns true for "localhost" and for loopback addresses.
bool IsLoopback(absl::string_view host);

// Returns the numeric address to listen on for a server that clients know as `host`. If `host` is loopback,
// returns the loopback address, so that only this machine can connect. Otherwise returns an empty string,
// which means all addresses: this machine may have more addresses than the one that `host` resolves to.
std::string ListenAddress(absl::string_view host);

// Returns true if `host` is a numeric address, false if it is a name.
bool IsNumericAddress(const std::string& host);

// Returns true if `host` is empty, loopback, this machine's name, or the address of one of this machine's
// interfaces; false for any other address; nullopt for any other name, which must be looked up. Does not
// block.
std::optional<bool> IsThisMachineAtOnce(const std::string& host);

// Like IsThisMachineAtOnce, but looks up names. Returns true if one of the addresses of `host` belongs to
// this machine; false if none does, or if `host` does not resolve. Blocks until the name server answers.
bool IsThisMachine(const std::string& host);

// Returns the numeric addresses of `host`, which is a name or an address. Returns an empty list if `host`
// does not resolve. Blocks until the name server answers.
std::vector<std::string> AddressesOf(const std::string& host);

// Returns the first address of this machine that is not loopback, IPv4 before IPv6; "127.0.0.1" if there is
// none.
std::string AddressOfThisMachine();

}  // namespace ddprun
