// What a worker runs: from the program as the user typed it to the arguments of execve.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "launcher/config/options.h"

namespace ddprun {

struct WorkerProgram {
  // argv[0] is a path; the others may hold ${local_rank}, see ArgumentsFor.
  std::vector<std::string> argv;
  // As it stood on the command line, with --module or --no-python if that was given.
  std::vector<std::string> typed = {};
  std::string name;  // title of the failure report: the script or module as typed, else the program
  bool operator==(const WorkerProgram&) const = default;
};

enum class ProgramKind { kAuto, kModule, kNoPython };

// Where programs are looked for.
struct ProgramPlaces {
  std::string cwd;         // of the launcher and its workers
  std::string ddprun_dir;  // where this binary is
  GetEnv get_env;          // PATH, PYTHON_EXEC
};

// `typed` is the program with its arguments, not empty.
//   kAuto:     an executable file is run as it is; a .py file, and a file that is no executable, with Python
//              (python -u FILE). A name without '/' is looked for in the working directory, beside ddprun,
//              and on PATH.
//   kModule:   python -u -m NAME.
//   kNoPython: as execvp finds it: a path, or a name on PATH.
//   A program with '$' in it differs between workers and is not looked for.
//   Errors: kNotFound: no such file, with all places looked at; or no Python. kFailedPrecondition: a binary
//           without permission to execute it.
absl::StatusOr<WorkerProgram> FindProgram(const std::vector<std::string>& typed, ProgramKind kind,
                                          const ProgramPlaces& places);

// `argv` for one worker: ${local_rank} and $local_rank replaced, $$ made $, all other '$' left alone.
std::vector<std::string> ArgumentsFor(const WorkerProgram& program, LocalRank local_rank);

// The same for one text.
std::string SubstituteLocalRank(absl::string_view text, LocalRank local_rank);

}  // namespace ddprun
