// A process whose stacks are wanted, and the commands of the tools that show them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/process/process_tree.h"
#include "launcher/stacks/tool_process.h"

namespace ddprun {

struct Target {
  ProcessEntry process = {};
  size_t threads = 1;
  bool python = false;
  bool stopped = false;                     // by a signal: state T
  bool blocked = false;                     // a thread is in state D
  std::string exe = {};                     // path of the program; empty if unknown
  std::vector<std::string> libraries = {};  // large program files that it maps; unknown if it is blocked
  // Of py-spy: PATH of the process, and the folders of its interpreter.
  std::vector<std::string> tool_folders = {};
};

// Returns nullopt if the process has ended. `max_threads`: threads that are counted at most.
//   Files of /proc whose read waits for the lock of the address space are not read if the process is blocked, because the reader might
//   then hang like the process.
std::optional<Target> Inspect(pid_t pid, size_t max_threads);

// Returns the path of the program `name` in `path`, folders separated by colons; empty if there is none. Ignores relative folders.
std::string FindTool(const std::string& name, absl::string_view path);

// Shows the Python frames of all threads, without a pause.
ToolCommand PySpyCommand(const std::string& file, pid_t pid);
struct GdbTarget {
  const Target* target = nullptr;
  size_t threads = 1;  // the first ones are shown; thread 1 is the main thread
};

// Shows the native frames of threads of several processes, one process after the other. gdb reads the symbols of their libraries before it
// attaches to the first one, and keeps them for the next ones: with PyTorch, it reads for 1.7 s, pauses the first process for 0.3 s, and each
// other one for 0.05 s. It shows the main thread first.
ToolCommand GdbCommand(const std::string& file, const std::vector<GdbTarget>& targets);

// Returns the part of gdb's output that is about a process; nullopt if gdb has not reached it.
std::optional<std::string> GdbSection(absl::string_view output, pid_t pid);

// True if the output of a tool says that it was not permitted to look at a process.
bool SaysNoPermission(absl::string_view output);
// What would permit a tool to look at a process. `ptrace_scope` is that of Yama; nullopt if the kernel has no Yama.
std::string PermissionRemedy(std::optional<int> ptrace_scope);
// Reads /proc/sys/kernel/yama/ptrace_scope.
std::optional<int> PtraceScope();

}  // namespace ddprun
