// The warden is a small process between the agent and its workers. It is the parent of all workers.
//
//   agent (threads, gRPC, Asio) --- socket --- warden (one thread, poll) ---> workers ---> their descendants
//
// Only the warden forks workers, so the agent may use threads freely. The warden is a subreaper: it becomes
// the parent of every descendant that is orphaned. A process therefore cannot escape by forking twice, by
// starting a new session or by ignoring SIGTERM.
//
// The warden exits when the agent closes its end of the socket or ends for any reason, including SIGKILL.
// Before the warden exits, it kills all its descendants and removes the files that the agent has passed to
// WardenClient::RemoveAtEnd. If the warden is killed, the kernel kills the workers (PDEATHSIG). The warden's
// other descendants become children of the agent, which is also a subreaper, and WardenClient kills them.
#pragma once

#include <sys/types.h>

#include <vector>

#include "os/descriptor.h"

namespace ddprun {

struct WardenHandle {
  UniqueFd socket = {};  // the agent's end (see warden_protocol.h); closing it makes the warden exit
  pid_t pid = -1;        // a child of this process; WardenClient reaps it
  // Children of this process that are older than the warden. They are not part of the job and are never
  // signalled.
  std::vector<pid_t> foreign_children = {};
};

// Forks the warden and makes this process a subreaper. Returns only in this process.
//   REQUIRES: this process has only one thread. Call StartWarden in main() before the first thread starts.
//   The warden inherits the working directory, limits and user. The name of its process is "ddp-warden". It
//   has its own session and ignores all signals except SIGKILL and SIGSTOP.
//   Errors: if the process, the socket or a descriptor cannot be created, this process writes a message to
//           stderr and exits with status 1. If the error occurs in the warden, only the warden writes a
//           message and exits, and WardenClient reports that the warden is lost.
WardenHandle StartWarden();

}  // namespace ddprun
