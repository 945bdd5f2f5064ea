// Stacks of the threads of worker processes, by py-spy and gdb.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace ddprun {

struct StackLimits {
  // A tool that runs longer is killed. gdb is one tool for all processes: it reads the symbols of their libraries once, which takes about
  // 2 s and 0.8 GB of memory with PyTorch.
  Duration tool = seconds(3);
  // Of one call. Processes whose turn has not come until then are said to be missing.
  Duration all = milliseconds(3500);
  Duration pause = milliseconds(1000);  // a process that gdb pauses longer is released
  // Bytes of stdout and stderr for one process. A tool that writes more is killed.
  size_t tool_output = 1 << 20;
  int at_once = 0;          // tools that run at the same time; 0: a quarter of the processors, at least 1
  size_t stack = 4096;      // bytes of the folded text of one thread; the outermost frames are cut
  size_t threads = 10'000;  // of all processes together
  // The folders in which the tools are searched, separated by colons. Unset: PATH of this process. If py-spy is not there, it is searched in
  // PATH of the worker and beside its Python interpreter.
  std::optional<std::string> path = {};
};

enum class StackKind {
  kWithoutPause,  // py-spy: Python frames of processes that run Python; nothing for other processes
  // gdb: native frames of all processes. Pauses each of them, with PyTorch for 0.05 s, the first one for 0.3 s. Also the Python frames, if
  // py-spy is installed: they replace the frames of the interpreter.
  kNative,
};

struct ThreadStack {
  pid_t thread = 0;
  std::string name = {};  // of the thread; of Python threads, the name given by Python; empty if unknown
  bool main = false;
  // One line for each frame, the innermost first: "load_batch (data.py:41)" for Python, "ncclGroupEnd" for native code, without
  // addresses and arguments. A stack that is cut ends with the line "...". Never empty.
  std::string folded = {};
  // Of Python: the innermost frame of the program itself, such as "<module> (train.py:14)"; empty if unknown.
  std::string program_frame = {};
};

struct Stacks {
  // The main thread first. Only processes with at least one stack.
  std::map<pid_t, std::vector<ThreadStack>> of = {};
  std::map<pid_t, Duration> paused = {};  // processes that gdb has paused; how long, to within 10 ms
  // For people: what is not in `of`, why, and what would allow it. Each reason once, with the processes it applies to. A process that has
  // ended is not mentioned.
  std::vector<std::string> missing = {};
};

// Returns the stacks of the processes `pids`; not those of their children.
//   kWithoutPause does not stop a process and does not change its state. A stack of a running thread may then be inconsistent.
//   kNative leaves a stopped process stopped and a running process running, also if a tool is killed. It does not attach to a process
//   that is traced by another process, or that has a thread that is blocked in the kernel (state D).
//   Errors:  none; they are in `missing`.
//   Time:    blocks for at most `limits.all` and 0.5 s. It blocks longer if reading /proc blocks.
//   Threads: may be called from any thread, also from several at once. Tools are killed when the calling thread ends. Reads the
//            environment variable PATH, unless `limits.path` is set.
//   Owns:    the tools. They are killed at their limit and reaped before the call returns; a tool that blocks in the kernel after SIGKILL is
//            reaped by a later call.
Stacks CollectStacks(const std::vector<pid_t>& pids, StackKind kind, const StackLimits& limits = {});

}  // namespace ddprun
