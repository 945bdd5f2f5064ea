// The warden: a small process between the agent and its workers, the parent of everything the job starts.
//
//   agent (threads, gRPC, Asio) --- socket --- warden (one thread, poll) ---> workers ---> what they start
//
// It is the only one that forks, so the agent may use threads as it likes. As subreaper it becomes the parent
// of every process a worker leaves behind (forked twice, in a new session, deaf to SIGTERM), so nothing
// escapes. It leaves when its socket closes, that is however the agent ends, SIGKILL included; before that it
// kills all that descends from it, and removes the files that the agent has named. When the warden itself is
// killed, its workers die with it (PDEATHSIG), and the agent, a subreaper too, inherits the rest and kills it
// (ProcessClient).
#pragma once

#include <sys/types.h>

#include <vector>

#include "os/unique_fd.h"

namespace ddprun {

struct WardenHandle {
  UniqueFd socket = {};  // the agent's end, see warden_protocol.h; closing it ends the warden
  pid_t pid = -1;        // a child of this process, waited for by ProcessClient
  std::vector<pid_t> foreign_children = {};  // had before the warden was started: not ours, never touched
};

// Forks the warden, which never returns from here, and makes this process a subreaper.
//   REQUIRES: this process has one thread; call it first in main().
//   The warden takes over working directory, limits and user; it shows itself as "ddp-warden", is in a
//   session of its own, and heeds no signal but SIGKILL and SIGSTOP.
//   Errors: without processes or descriptors nothing can be started: says so on stderr and exits with 1.
WardenHandle StartWarden();

}  // namespace ddprun
