// The warden's main loop. See warden.h.
#pragma once

#include <sys/resource.h>

#include <csignal>

#include "os/descriptor.h"

namespace ddprun {

// The signal that the kernel sends to the warden when the agent's main thread has ended.
inline constexpr int kAgentDied = SIGUSR1;

struct WardenResources {
  UniqueFd socket;       // connected to the agent; non-blocking
  UniqueFd sigchld;      // signalfd for SIGCHLD and kAgentDied; non-blocking
  UniqueFd fence_timer;  // timerfd, CLOCK_BOOTTIME; non-blocking
  UniqueFd ends;         // epoll descriptor for the workers' pidfds
  rlimit worker_files;   // the workers' limit on open files
};

// Serves the agent until the agent ends, then kills all descendants of this process and exits.
[[noreturn]] void RunWarden(WardenResources resources);

}  // namespace ddprun
