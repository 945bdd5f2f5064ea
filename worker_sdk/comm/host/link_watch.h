// Detects that the network between two nodes is cut although the processes at both ends are alive.
//
// By default, TCP retransmits for about 15 minutes before it breaks a connection with data in flight, and it
// never breaks an idle connection. Keepalive breaks an idle connection within seconds; UnansweredFor covers
// data in flight. TCP_USER_TIMEOUT would cover both, but it also counts the time during which the peer's
// receive window is closed. It would therefore break the connection to a peer that computes for longer than
// the timeout without reading.
#pragma once

#include <string>

#include "base/time.h"

namespace ddprun {

// Returns the silence limit that TCP can enforce: `wanted` rounded up to whole seconds, at least 2 s.
Duration SilenceLimit(Duration wanted);

// Makes TCP break an idle connection when the peer's kernel has not answered for SilenceLimit(wanted) plus
// one second. `in_flight`: also breaks the connection while data is in flight; set this only if the peer
// always reads.
void WatchLink(int fd, Duration wanted, bool in_flight);

// Returns true if the errno value `error` means that the connection broke because no answer arrived. Other
// errors are caused by the peer.
bool IsSilence(int error);

// Returns the time since the peer's last acknowledgement if data is in flight on the connection, otherwise
// zero. This time may include a period before the data was sent.
Duration UnansweredFor(int fd);

// Describes the two ends of the connection for error messages: "node 0 (10.0.0.1) and node 1 (10.0.0.2)".
std::string EndsInWords(int fd, int our_node, int peer_node);

}  // namespace ddprun
