// Resolves the program given by the user into the arguments of execve.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "launcher/cli/options.h"

namespace ddprun {

struct WorkerProgram {
  std::vector<std::string> argv;  // may contain ${local_rank}; see ArgumentsFor
  std::string file = {};          // path of the executable; may contain ${local_rank}; empty: argv[0]
  size_t first_arg = 1;           // index in argv of the user's first argument, after the script or module
  // Program and arguments as given by the user, preceded by --module, --no-python or --run-path if one of
  // them was given.
  std::vector<std::string> typed = {};
  std::string name;  // for the failure report: the script, module or program as typed
  bool operator==(const WorkerProgram&) const = default;
};

enum class ProgramKind { kAuto, kModule, kNoPython, kRunPath };

// Where to look for programs.
struct ProgramPlaces {
  std::string cwd;         // of the launcher and its workers
  std::string ddprun_dir;  // directory of this binary
  GetEnv get_env;          // PATH, PYTHON_EXEC
};

// Finds the program that the user has given. `typed` is the program with its arguments; it is not empty.
//   kAuto:     Python (python -u FILE) runs .py files, files that are not executable, executable text without
//              a #! line, zip archives, directories with a __main__.py, pipes, and "-" (standard input).
//              Other executable files are run directly. A name without '/' is looked up in the working
//              directory, in the directory of ddprun, and on PATH.
//   kModule:   python -u -m NAME.
//   kNoPython: a path, or a name that is looked up on PATH, as in execvp.
//   kRunPath:  python -u -c kRunPathProgram FILE.
//   A program that contains '$' may differ between workers; its existence is not checked.
//   Reads only regular files: data that is read from a pipe would be lost to the program.
//   Errors: kNotFound: there is no such file (the message lists the places searched), or there is no Python
//           interpreter. kFailedPrecondition: the file is a binary without execute permission.
absl::StatusOr<WorkerProgram> FindProgram(const std::vector<std::string>& typed, ProgramKind kind,
                                          const ProgramPlaces& places);

// Returns the argv of one worker: ${local_rank} and $local_rank are replaced, $$ becomes $, and any other '$'
// is unchanged.
//   pass_local_rank: inserts --local-rank=N before the user's arguments.
std::vector<std::string> ArgumentsFor(const WorkerProgram& program, LocalRank local_rank,
                                      bool pass_local_rank);

// Applies the substitution of ArgumentsFor to one string.
std::string SubstituteLocalRank(absl::string_view text, LocalRank local_rank);

// Returns `word`, quoted for a shell if it is empty or contains special characters.
std::string ShellWord(absl::string_view word);

}  // namespace ddprun
