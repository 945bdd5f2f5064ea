// The warden: a small process between the agent and its workers, the parent of everything the job starts.
//
//   agent (threads, gRPC, Asio) --- socket --- warden (one thread, poll) ---> workers ---> what they start
//
// Only the warden forks, so the agent may use threads freely. As a subreaper, the warden becomes the parent
// of every process that a worker orphans (forked twice, in a new session, ignoring SIGTERM), so none escapes.
// It exits when its socket closes, that is, when the agent ends by any cause, including SIGKILL. Before it
// exits, it kills all its descendants and removes the files that the agent has named. If the warden is
// killed, its workers die with it (PDEATHSIG), and the agent, also a subreaper, inherits the rest and kills
// it (WardenClient).
#pragma once

#include <sys/types.h>

#include <vector>

#include "os/descriptor.h"

namespace ddprun {

struct WardenHandle {
  UniqueFd socket = {};  // the agent's end, see warden_protocol.h; closing it ends the warden
  pid_t pid = -1;        // a child of this process, waited for by WardenClient
  std::vector<pid_t> foreign_children = {};  // older than the warden: not of the job, never signalled
};

// Forks the warden and makes this process a subreaper. Returns only in this process.
//   REQUIRES: this process has one thread; call it first in main().
//   The warden inherits working directory, limits and user. Its name is "ddp-warden", it has its own session,
//   and it ignores all signals except SIGKILL and SIGSTOP.
//   Errors: if no process or descriptor is available, logs to stderr and exits with 1.
WardenHandle StartWarden();

}  // namespace ddprun
