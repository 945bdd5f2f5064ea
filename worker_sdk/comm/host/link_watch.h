// Notices that the network between two nodes is cut, while the processes at both ends live.
//
// TCP alone tries for a quarter of an hour before it gives up what it has sent, and never notices that
// nothing can come. Keepalive makes it notice the second within seconds, as long as nothing is in flight;
// what is in flight is watched here. TCP_USER_TIMEOUT would watch both, but also breaks a connection whose
// peer computes for longer and does not read meanwhile: it counts from when the window was closed.
#pragma once

#include <string>

#include "base/time.h"

namespace ddprun {

// What TCP can keep: whole seconds, and not less than 2.
Duration SilenceLimit(Duration wanted);

// Makes TCP break the connection when the peer's kernel has answered nothing for SilenceLimit(wanted) and a
// second, while nothing is in flight; with `in_flight` also when something is: for connections whose
// peer always reads.
void WatchLink(int fd, Duration wanted, bool in_flight);

// True for errors of a connection that broke for want of an answer. Others come from the peer.
bool IsSilence(int error);

// How long something has been in flight on a connection without any answer; zero: nothing is.
Duration UnansweredFor(int fd);

// "node 0 (10.0.0.1) and node 1 (10.0.0.2)", of the connection's two ends.
std::string EndsInWords(int fd, int our_node, int peer_node);

}  // namespace ddprun
