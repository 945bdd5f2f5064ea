// What the processes of workers do, from two looks at /proc.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/time.h"
#include "base/worker_evidence.h"
#include "launcher/process/process_tree.h"

namespace ddprun {

// One thread at one moment.
struct ThreadSample {
  pid_t pid = 0;  // its process
  ProcessEntry thread = {};
  std::string kernel_wait = {};  // the kernel function in which it waits; empty if unknown
  std::string system_call = {};  // for example "futex"; empty if unknown, or if it is in none
};

struct ProcessSample {
  pid_t tracer = 0;  // the process that traces a thread; 0: none
  std::string tracer_name = {};
  std::vector<ThreadSample> threads =
      {};                // of the worker and of the processes below it; the main thread of the worker first
  bool complete = true;  // false: not all threads are in `threads`
};

// The limits of one look.
struct SampleLimits {
  size_t threads = 10'000;  // of all workers together
  Duration time = seconds(1);
};

// Looks at the processes `roots` and at all processes below them. A root that has ended has no threads. May block for as long as /proc
// does.
std::map<pid_t, ProcessSample> SampleProcesses(const std::vector<pid_t>& roots,
                                               const SampleLimits& limits = {});

// Compares two looks at a worker, `between` apart. Sets the state and the place. Pure.
void Judge(const ProcessSample& before, const ProcessSample& after, Duration between,
           WorkerEvidence& evidence);

// Looks at the processes of the workers twice, one second apart, and judges them. Blocks for at least that time. Returns false if the
// limits have left threads out.
bool JudgeProcesses(std::vector<WorkerEvidence>& workers);

// The name of a system call of this machine in which threads often wait; "system call N" for others.
std::string SystemCallName(long number);

}  // namespace ddprun
