// The main loop of the warden. See warden.h.
#pragma once

#include <sys/resource.h>

#include <csignal>

#include "os/descriptor.h"

namespace ddprun {

// Sent by the kernel when the agent's main thread has ended.
inline constexpr int kAgentDied = SIGUSR1;

struct WardenResources {
  UniqueFd socket;       // to the agent; non-blocking
  UniqueFd sigchld;      // signalfd of SIGCHLD and kAgentDied; non-blocking
  UniqueFd fence_timer;  // timerfd, CLOCK_BOOTTIME; non-blocking
  UniqueFd ends;         // epoll
  rlimit worker_files;   // limit of open files that workers get
};

// Serves the agent until it ends, then kills all descendants of this process and exits.
[[noreturn]] void RunWarden(WardenResources resources);

}  // namespace ddprun
