// TCP connections to a host by name, with a deadline for everything, name resolution included.
#pragma once

#include <string>

#include "base/time.h"
#include "ddprun/status.h"
#include "os/descriptor.h"

namespace ddprun {

// Connects to `host` (a name or an address) and returns a non-blocking socket with TCP_NODELAY. Tries all
// addresses of the name.
//   cancel_fd: ends every wait as soon as it is readable; -1: none.
//   Errors: kUnavailable: the name does not resolve, or no address accepts the connection before `deadline`.
//           Each address gets at most 10 s. kCancelled: cancel_fd.
StatusOr<UniqueFd> DialTcp(const std::string& host, int port, TimePoint deadline, int cancel_fd = -1);

// Returns the numeric address that this machine uses as the source address of packets to `host`. Sends no
// packets apart from those of the name's resolution.
//   Errors: kUnavailable: `host` does not resolve before `deadline`, or there is no route to it.
StatusOr<std::string> LocalAddressTowards(const std::string& host, TimePoint deadline);

// Blocks until `fd` is ready for `events` (poll), or has an error. If `fd` is negative, only `cancel_fd` and the deadline end
// the wait.
//   Errors: kDeadlineExceeded; kCancelled: `cancel_fd` is readable, also if `fd` is ready. -1: none.
Status AwaitReady(int fd, short events, TimePoint deadline, int cancel_fd = -1);

}  // namespace ddprun
