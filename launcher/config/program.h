// What a worker runs: from the program as the user typed it to the arguments of execve.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "launcher/cli/options.h"

namespace ddprun {

struct WorkerProgram {
  std::vector<std::string> argv;  // may hold ${local_rank}, see ArgumentsFor
  std::string file = {};          // a path, with the same in it; empty: argv[0]
  size_t first_arg = 1;           // in argv: the first of the user's arguments, behind the script or module
  // As it stood on the command line, with --module, --no-python or --run-path if that was given.
  std::vector<std::string> typed = {};
  std::string name;  // title of the failure report: the script or module as typed, else the program
  bool operator==(const WorkerProgram&) const = default;
};

enum class ProgramKind { kAuto, kModule, kNoPython, kRunPath };

// Where programs are looked for.
struct ProgramPlaces {
  std::string cwd;         // of the launcher and its workers
  std::string ddprun_dir;  // where this binary is
  GetEnv get_env;          // PATH, PYTHON_EXEC
};

// `typed` is the program with its arguments, not empty.
//   kAuto:     Python (python -u FILE) runs .py files, files that are not executable, executable text without
//              a #! line, zip archives, directories with a __main__.py, pipes, and "-", its standard input.
//              Other executable files run as they are. A name without '/' is looked for in the working
//              directory, beside ddprun, and on PATH.
//   kModule:   python -u -m NAME.
//   kNoPython: as execvp finds it: a path, or a name on PATH.
//   kRunPath:  python -u -c kRunPathProgram FILE.
//   A program with '$' in it differs between workers and is not looked for.
//   Only regular files are read.
//   Errors: kNotFound: no such file, with the places looked at; or no Python. kFailedPrecondition: a binary
//           without permission to execute it.
absl::StatusOr<WorkerProgram> FindProgram(const std::vector<std::string>& typed, ProgramKind kind,
                                          const ProgramPlaces& places);

// `argv` for one worker: ${local_rank} and $local_rank replaced, $$ made $, all other '$' left alone.
// `pass_local_rank`: the first of the user's arguments is --local-rank=N.
std::vector<std::string> ArgumentsFor(const WorkerProgram& program, LocalRank local_rank,
                                      bool pass_local_rank);

// The same for one text.
std::string SubstituteLocalRank(absl::string_view text, LocalRank local_rank);

// Text that a shell reads as one word.

// In quotes if a shell would see more in it than its letters.
std::string ShellWord(absl::string_view word);

}  // namespace ddprun
