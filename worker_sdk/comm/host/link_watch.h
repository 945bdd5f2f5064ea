// Detects that the network between two nodes is cut while the processes at both ends are alive.
//
// TCP alone retransmits for about 15 minutes before it breaks a connection with data in flight, and never
// breaks an idle one. Keepalive breaks an idle connection within seconds; data in flight is watched here.
// TCP_USER_TIMEOUT would cover both, but also breaks the connection to a peer that computes for longer
// without reading, because it counts from the moment at which the window closed.
#pragma once

#include <string>

#include "base/time.h"

namespace ddprun {

// The limit that TCP can implement: `wanted` rounded up to whole seconds, at least 2 s.
Duration SilenceLimit(Duration wanted);

// Makes TCP break an idle connection when the peer's kernel has not answered for SilenceLimit(wanted) plus
// one second. `in_flight`: also while data is in flight; only for connections whose peer always reads.
void WatchLink(int fd, Duration wanted, bool in_flight);

// True if the errno `error` means that the connection broke because nothing answered. Other errors come from
// the peer.
bool IsSilence(int error);

// How long data has been in flight on the connection without any answer; zero: no data is in flight.
Duration UnansweredFor(int fd);

// The connection's two ends, for messages: "node 0 (10.0.0.1) and node 1 (10.0.0.2)".
std::string EndsInWords(int fd, int our_node, int peer_node);

}  // namespace ddprun
