#include "launcher/config/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "launcher/config/run_path.h"
#include "launcher/config/safe_substitute.h"

namespace ddprun {
namespace {

bool IsFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
}

bool IsExecutable(const std::string& path) { return IsFile(path) && access(path.c_str(), X_OK) == 0; }

bool IsElf(const std::string& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return absl::string_view(magic, sizeof magic) == absl::string_view("\177ELF", 4);
}

// `file` as seen from `dir`, if it is not absolute. Only for looking: workers have the same working
// directory.
std::string In(absl::string_view dir, absl::string_view file) {
  if (absl::StartsWith(file, "/")) return std::string(file);
  return absl::StrCat(dir, "/", file);
}

std::vector<std::string> PathDirectories(const ProgramPlaces& places) {
  std::vector<std::string> dirs =
      absl::StrSplit(places.get_env("PATH").value_or("/usr/local/bin:/usr/bin:/bin"), ':');
  for (std::string& dir : dirs) {
    if (dir.empty()) dir.assign(1, '.');  // as the shell reads it
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

// Every file that `typed` can mean, best first. One with a '/' means itself.
std::vector<std::string> Candidates(const std::string& typed, const ProgramPlaces& places) {
  if (absl::StrContains(typed, '/')) return {typed};
  std::vector<std::string> files = {absl::StrCat("./", typed), In(places.ddprun_dir, typed)};
  for (const std::string& dir : PathDirectories(places)) files.push_back(In(dir, typed));
  return files;
}

// How a file is run: as it is, or by Python.
struct Found {
  std::string path;
  bool with_python;
};

absl::StatusOr<Found> Find(const std::string& typed, const ProgramPlaces& places) {
  const bool is_script = absl::EndsWith(typed, ".py");
  if (absl::StrContains(typed, '$')) return Found{typed, is_script};
  const std::vector<std::string> candidates = Candidates(typed, places);
  const auto first = [&](auto test) -> std::optional<std::string> {
    for (const std::string& file : candidates) {
      if (test(In(places.cwd, file))) return file;
    }
    return std::nullopt;
  };
  if (is_script) {
    // One in the working directory keeps the name that was typed: the script sees it in its arguments.
    if (IsFile(In(places.cwd, typed))) return Found{typed, true};
    if (const auto file = first(IsFile)) return Found{*file, true};
  } else {
    // A data file of that name in the working directory does not hide a program.
    if (const auto file = first(IsExecutable)) return Found{*file, false};
    if (IsFile(In(places.cwd, candidates[0]))) {
      if (IsElf(In(places.cwd, candidates[0]))) {
        return absl::FailedPreconditionError(absl::StrCat(
            candidates[0], ": permission denied: make it executable (chmod +x ", candidates[0], ")"));
      }
      return Found{typed, true};
    }
  }
  if (candidates.size() == 1) return absl::NotFoundError(absl::StrCat("no such program: ", typed));
  return absl::NotFoundError(
      absl::StrCat("no such program: ", typed, " (looked for in ", places.cwd, ", beside ddprun in ",
                   places.ddprun_dir, ", and on PATH: ", absl::StrJoin(PathDirectories(places), ":"), ")"));
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
            absl::StrCat("no such program: ", typed[0], as_typed ? "" : " (looked for on PATH)"));
      }
      program.argv = {typed[0]};
      if (!as_typed) program.file = *found;
      break;
    }
    case ProgramKind::kRunPath: {
      program.typed.insert(program.typed.begin(), "--run-path");
      // A directory or an archive with a __main__.py is a script, too.
      if (!absl::StrContains(typed[0], '$') && access(In(places.cwd, typed[0]).c_str(), F_OK) != 0)
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

}  // namespace ddprun
