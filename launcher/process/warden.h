// The warden: a small process between the agent and its workers, and the parent of all workers.
//
//   agent (threads, gRPC, Asio) --- socket --- warden (one thread, poll) ---> workers ---> what they start
//
// Only the warden forks, so the agent may use threads freely. The warden is a subreaper: it becomes the
// parent of every process that a worker orphans. So no process escapes, even if it is forked twice, is in a
// new session or ignores SIGTERM. The warden exits when its socket closes, that is, when the agent ends for
// any reason, including SIGKILL. Before it exits, it kills all its descendants and removes the files that the
// agent has named. If the warden is killed, its workers die with it (PDEATHSIG). The agent, which is also a
// subreaper, inherits the warden's other descendants and kills them (WardenClient).
#pragma once

#include <sys/types.h>

#include <vector>

#include "os/descriptor.h"

namespace ddprun {

struct WardenHandle {
  UniqueFd socket = {};  // the agent's end (see warden_protocol.h); closing it makes the warden exit
  pid_t pid = -1;        // a child of this process; WardenClient reaps it
  std::vector<pid_t> foreign_children = {};  // from before the warden, not part of the job: never signalled
};

// Forks the warden and makes this process a subreaper. Returns only in this process.
//   REQUIRES: this process has only one thread. Call StartWarden first in main().
//   The warden inherits the working directory, limits and user. Its name is "ddp-warden". It has its own
//   session and ignores all signals except SIGKILL and SIGSTOP.
//   Errors: if no process or descriptor is available, logs to stderr and exits with 1.
WardenHandle StartWarden();

}  // namespace ddprun
