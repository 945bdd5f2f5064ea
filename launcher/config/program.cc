#include "launcher/config/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "launcher/config/run_path.h"
#include "launcher/config/safe_substitute.h"

namespace ddprun {
namespace {

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool HasMode(const std::string& path, mode_t type) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && (info.st_mode & S_IFMT) == type;
}

bool IsDirectory(const std::string& path) { return HasMode(path, S_IFDIR); }

// True if `path` exists and is not a directory. Pipes and devices count as files.
bool IsFile(const std::string& path) { return IsThere(path) && !IsDirectory(path); }

bool IsExecutable(const std::string& path) {
  return HasMode(path, S_IFREG) && access(path.c_str(), X_OK) == 0;
}

// A directory that Python can run.
bool IsRunnableDirectory(const std::string& path) {
  return IsDirectory(path) && IsFile(absl::StrCat(path, "/__main__.py"));
}

// Returns the first bytes of a regular file. Returns an empty string for other files, because bytes that are
// read from a pipe would be lost to the program.
std::string BeginningOf(const std::string& path) {
  if (!HasMode(path, S_IFREG)) return "";
  std::string bytes(512, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  return bytes;
}

bool IsElf(const std::string& path) { return absl::StartsWith(BeginningOf(path), "\177ELF"); }

// True for files that only Python can run: zip archives, and text without a #! line. execve rejects both.
bool IsForPython(const std::string& path) {
  const std::string bytes = BeginningOf(path);
  if (absl::StartsWith(bytes, "PK\3\4")) return true;
  return !absl::StartsWith(bytes, "#!") && !absl::StrContains(bytes, '\0') && access(path.c_str(), R_OK) == 0;
}

// Returns the path of `file`, which may be relative to `dir`. For lookups only: workers have the same working
// directory as this process, so they get paths as typed.
std::string In(absl::string_view dir, absl::string_view file) {
  if (absl::StartsWith(file, "/")) return std::string(file);
  return absl::StrCat(dir, "/", file);
}

std::vector<std::string> PathDirectories(const ProgramPlaces& places) {
  std::vector<std::string> dirs =
      absl::StrSplit(places.get_env("PATH").value_or("/usr/local/bin:/usr/bin:/bin"), ':');
  for (std::string& dir : dirs) {
    if (dir.empty()) dir.assign(1, '.');  // the working directory, as in a shell
  }
  return dirs;
}

std::optional<std::string> OnPath(absl::string_view name, const ProgramPlaces& places) {
  for (const std::string& dir : PathDirectories(places)) {
    if (IsExecutable(In(places.cwd, In(dir, name)))) return In(dir, name);
  }
  return std::nullopt;
}

absl::StatusOr<std::string> FindPython(const ProgramPlaces& places) {
  if (const auto chosen = places.get_env("PYTHON_EXEC"); chosen && !chosen->empty()) {
    if (absl::StrContains(*chosen, '/')) {
      if (IsExecutable(In(places.cwd, *chosen))) return *chosen;
    } else if (const auto found = OnPath(*chosen, places)) {
      return *found;
    }
    return absl::NotFoundError(absl::StrCat("PYTHON_EXEC=", *chosen, ": no such executable"));
  }
  for (const char* name : {"python3", "python"}) {
    if (const auto found = OnPath(name, places)) return *found;
  }
  return absl::NotFoundError("no python3 on PATH: set PYTHON_EXEC to the interpreter");
}

// All files that `typed` can refer to, in order of preference. A name with '/' refers only to that path.
std::vector<std::string> Candidates(const std::string& typed, const ProgramPlaces& places) {
  if (absl::StrContains(typed, '/')) return {typed};
  std::vector<std::string> files = {absl::StrCat("./", typed), In(places.ddprun_dir, typed)};
  for (const std::string& dir : PathDirectories(places)) files.push_back(In(dir, typed));
  return files;
}

// A program file and how to run it: directly or with Python.
struct Found {
  std::string path;
  bool with_python;
};

absl::Status NotFound(const std::string& typed, const ProgramPlaces& places) {
  const std::string path = In(places.cwd, typed);
  if (IsDirectory(path)) {
    return absl::NotFoundError(
        absl::StrCat(typed, " is a directory without a __main__.py: give the path of the script in it"));
  }
  if (absl::StrContains(typed, '/')) return absl::NotFoundError(absl::StrCat("no such program: ", typed));
  return absl::NotFoundError(absl::StrCat("no such program: ", typed, " (neither in ", places.cwd,
                                          " nor in ddprun's directory ", places.ddprun_dir,
                                          " nor on PATH): check the name, or give its path"));
}

absl::StatusOr<Found> Find(const std::string& typed, const ProgramPlaces& places) {
  if (typed == "-") return Found{typed, true};  // Python reads the program from stdin.
  const bool is_script = absl::EndsWith(typed, ".py");
  if (absl::StrContains(typed, '$')) return Found{typed, is_script};
  // Prefer the working directory. Pass the path to Python as typed, since it becomes sys.argv[0].
  const std::string here = In(places.cwd, typed);
  if (IsRunnableDirectory(here) || (is_script && IsFile(here)) || (IsExecutable(here) && IsForPython(here))) {
    return Found{typed, true};
  }
  const std::vector<std::string> candidates = Candidates(typed, places);
  for (const std::string& file : candidates) {
    const std::string path = In(places.cwd, file);
    if (is_script ? IsFile(path) : IsExecutable(path)) return Found{file, is_script};
  }
  // Checked last, so that a data file in the working directory does not hide a program of the same name.
  if (!IsFile(here)) return NotFound(typed, places);
  if (IsElf(here)) {
    return absl::FailedPreconditionError(absl::StrCat(
        candidates[0], ": permission denied: make it executable (chmod +x ", candidates[0], ")"));
  }
  return Found{typed, true};
}

}  // namespace

absl::StatusOr<WorkerProgram> FindProgram(const std::vector<std::string>& typed, ProgramKind kind,
                                          const ProgramPlaces& places) {
  WorkerProgram program = {.argv = {}, .typed = typed, .name = typed[0]};
  switch (kind) {
    case ProgramKind::kModule: {
      program.typed.insert(program.typed.begin(), "--module");
      ASSIGN_OR_RETURN(const std::string python, FindPython(places));
      program.argv = {python, "-u", "-m", typed[0]};
      break;
    }
    case ProgramKind::kNoPython: {
      program.typed.insert(program.typed.begin(), "--no-python");
      const bool as_typed = absl::StrContains(typed[0], '/') || absl::StrContains(typed[0], '$');
      const auto found = as_typed ? typed[0] : OnPath(typed[0], places);
      if (!found || (!absl::StrContains(typed[0], '$') && !IsFile(In(places.cwd, *found)))) {
        return absl::NotFoundError(
            absl::StrCat("no such program: ", typed[0], as_typed ? "" : " (not found on PATH)"));
      }
      program.argv = {typed[0]};
      if (!as_typed) program.file = *found;
      break;
    }
    case ProgramKind::kRunPath: {
      program.typed.insert(program.typed.begin(), "--run-path");
      // A script may also be a directory or an archive with a __main__.py.
      if (!absl::StrContains(typed[0], '$') && !IsThere(In(places.cwd, typed[0])))
        return absl::NotFoundError(absl::StrCat("no such script: ", typed[0]));
      ASSIGN_OR_RETURN(const std::string python, FindPython(places));
      program.argv = {python, "-u", "-c", kRunPathProgram, typed[0]};
      break;
    }
    case ProgramKind::kAuto: {
      ASSIGN_OR_RETURN(const Found found, Find(typed[0], places));
      if (found.with_python) {
        ASSIGN_OR_RETURN(const std::string python, FindPython(places));
        program.argv = {python, "-u"};
      }
      program.argv.push_back(found.path);
      break;
    }
  }
  program.first_arg = program.argv.size();
  program.argv.insert(program.argv.end(), typed.begin() + 1, typed.end());
  return program;
}

std::vector<std::string> ArgumentsFor(const WorkerProgram& program, LocalRank local_rank,
                                      bool pass_local_rank) {
  std::vector<std::string> argv;
  for (const std::string& arg : program.argv) argv.push_back(SubstituteLocalRank(arg, local_rank));
  if (pass_local_rank) {
    argv.insert(argv.begin() + static_cast<ptrdiff_t>(program.first_arg),
                absl::StrCat("--local-rank=", local_rank.value()));
  }
  return argv;
}

std::string SubstituteLocalRank(absl::string_view text, LocalRank local_rank) {
  return SafeSubstitute(text, {{"local_rank", absl::StrCat(local_rank.value())}});
}

std::string ShellWord(absl::string_view word) {
  const auto plain = [](char c) {
    return absl::ascii_isalnum(c) || absl::string_view("_-./:=,+@%").find(c) != absl::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace ddprun
