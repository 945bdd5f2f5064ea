// What the warden does once it is a process of its own. See warden.h.
#pragma once

#include <sys/resource.h>

#include <csignal>

#include "os/unique_fd.h"

namespace ddprun {

// The kernel sends it when the agent's main thread has ended.
inline constexpr int kAgentDied = SIGUSR1;

struct WardenResources {
  UniqueFd socket;       // to the agent; non-blocking
  UniqueFd sigchld;      // signalfd of SIGCHLD and kAgentDied; non-blocking
  UniqueFd fence_timer;  // timerfd, CLOCK_BOOTTIME; non-blocking
  UniqueFd ends;         // epoll
  rlimit worker_files;   // limit of open files that workers get
};

// Serves the agent until it has gone, then ends all that descends from this process, and then the process.
[[noreturn]] void RunWarden(WardenResources resources);

}  // namespace ddprun
