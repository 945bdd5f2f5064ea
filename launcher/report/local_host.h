// The name of this machine.
#pragma once

#include <string>

namespace ddprun {

// Its full name, as in node1.example; the short one where no full one is known. Asks the resolver when the
// machine's own name has no dot, which can take as long as a DNS server that does not answer: ask once, and
// not in front of something urgent.
std::string LocalHostName();

}  // namespace ddprun
