#include "launcher/logs/log_layout.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "base/temporary_directory.h"

namespace ddprun {
namespace {

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the log directory ", path));
}

// A new directory with a name that nobody else has.
absl::StatusOr<std::string> MakeUnique(std::string pattern) {
  if (mkdtemp(pattern.data()) != nullptr) return pattern;
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the log directory ", pattern));
}

// `dir` and what is below, but for what holds a file.
void RemoveEmpty(const std::filesystem::path& dir) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(dir, ignored)) {
    if (entry.is_directory(ignored) && !entry.is_symlink(ignored)) RemoveEmpty(entry.path());
  }
  rmdir(dir.c_str());
}

}  // namespace

bool LogsAreOff(absl::string_view base) { return base == "/dev/null"; }

std::string RunDirectoryPrefix(absl::string_view run_id) {
  return absl::StrCat(absl::StrReplaceAll(run_id, {{"/", "_"}}), "_");
}

absl::StatusOr<LogLayout> LogLayout::Create(absl::string_view base, absl::string_view run_id) {
  LogLayout layout;
  if (LogsAreOff(base)) return layout;
  std::string parent(base);
  if (base.empty()) {
    ASSIGN_OR_RETURN(const std::string temporary, TemporaryDirectory());
    ASSIGN_OR_RETURN(parent, MakeUnique(temporary + "/torchelastic_XXXXXX"));
    layout.temporary_base_ = parent;
  } else {
    RETURN_IF_ERROR(MakeDirectories(parent));
    std::error_code ignored;
    parent = std::filesystem::absolute(parent, ignored).string();
  }
  // mkdtemp fills in six of the eight random letters; our pid gives the others.
  const std::string two = absl::StrCat(absl::Hex(getpid() % 256, absl::kZeroPad2));
  ASSIGN_OR_RETURN(layout.run_dir_,
                   MakeUnique(absl::StrCat(parent, "/", RunDirectoryPrefix(run_id), two, "XXXXXX")));
  return layout;
}

LogLayout::~LogLayout() {
  if (!temporary_base_.empty()) RemoveEmpty(temporary_base_);
}

std::string LogLayout::AttemptDir(int restart_count) const {
  return run_dir_.empty() ? "" : absl::StrCat(run_dir_, "/attempt_", restart_count);
}

absl::StatusOr<AttemptFiles> LogLayout::NewAttempt(int restart_count, int num_workers) {
  AttemptFiles files;
  files.workers.resize(static_cast<size_t>(num_workers));
  if (run_dir_.empty()) return files;
  files.dir = AttemptDir(restart_count);
  files.filtered_stdout_log = files.dir + "/filtered_stdout.log";
  files.filtered_stderr_log = files.dir + "/filtered_stderr.log";
  int& used = times_used_[restart_count];
  const std::string older = absl::StrCat(files.dir, ".", used);
  if (used > 0 && rename(files.dir.c_str(), older.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("cannot rename the log directory ", files.dir, " to ", older));
  }
  ++used;
  for (int i = 0; i < num_workers; ++i) {
    const std::string dir = absl::StrCat(files.dir, "/", i);
    RETURN_IF_ERROR(MakeDirectories(dir));
    files.workers[static_cast<size_t>(i)] = {.stdout_log = dir + "/stdout.log",
                                             .stderr_log = dir + "/stderr.log",
                                             .error_json = dir + "/error.json"};
  }
  return files;
}

}  // namespace ddprun
