// Folded stacks from the output of py-spy and gdb. Pure.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun {

// A thread in the output of a tool.
struct ToolThread {
  pid_t thread = 0;  // 0: the tool does not know it
  std::string name = {};
  std::vector<std::string> frames = {};  // the innermost first
  // The innermost Python frame that is neither in the standard library nor in an installed package; empty if there is none.
  std::string program_frame = {};
};

// Returns the threads in the output of `py-spy dump --full-filenames`. Lines that are not understood are ignored, and so is the last line if it does not
// end with a newline, because the output may be cut. Threads without frames are left out.
std::vector<ToolThread> ParsePySpy(absl::string_view output);

// Returns the threads in the output of gdb's `thread apply all backtrace`, like ParsePySpy; each thread once. Frames of the C library are
// left out, unless a thread has no others. Names may be mangled in the output.
std::vector<ToolThread> ParseGdb(absl::string_view output);

// Replaces the frames of the Python interpreter, and those outside of them, by `python`; by "[Python]" if `python` is empty. Returns
// `native` if it has no frames of the interpreter.
std::vector<std::string> WithPython(const std::vector<std::string>& native,
                                    const std::vector<std::string>& python);

// One line for each frame, at most `limit` bytes; then the last line is "...". Not empty, unless `frames` is.
std::string Fold(const std::vector<std::string>& frames, size_t limit);

// The name of a function, which may be mangled, without arguments, return type and long template arguments:
// "std::vector<int>::push_back".
std::string ShortFunction(absl::string_view name);

}  // namespace ddprun
