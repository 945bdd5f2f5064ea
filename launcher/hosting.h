// Whether the coordinator's place, as the command line names it, is this machine, and what others call it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// True for "localhost" and loopback addresses.
bool IsLoopback(absl::string_view host);

// The numeric address that a server known as `host` listens on: that very one if it is loopback, which means
// that nobody from elsewhere shall come; else empty, all addresses, since a name may be one of many that this
// machine has.
std::string ListenAddress(absl::string_view host);

// True for addresses, false for names.
bool IsNumericAddress(const std::string& host);

// True if `host` is loopback, or this machine's name, or an address of one of its interfaces; false for any
// other address; none: only the resolver knows.
std::optional<bool> IsThisMachineAtOnce(const std::string& host);

// The same, and for other names whether they resolve to such an address. Takes as long as the name server
// needs; false if that one does not know the name.
bool IsThisMachine(const std::string& host);

// The numeric addresses of `host`, a name or an address; empty: it does not resolve. May take as long as the
// name server does.
std::vector<std::string> AddressesOf(const std::string& host);

// The first address of this machine that is not loopback, IPv4 before IPv6; "127.0.0.1" if there is none.
std::string AddressOfThisMachine();

}  // namespace ddprun
