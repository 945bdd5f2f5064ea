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
#include "os/files.h"

namespace ddprun {
namespace {

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot create the log directory ", path));
}

// Creates a directory with a unique name.
absl::StatusOr<std::string> MakeUnique(std::string pattern) {
  if (mkdtemp(pattern.data()) != nullptr) return pattern;
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot create the log directory ", pattern));
}

}  // namespace

std::string RunDirectoryPrefix(absl::string_view run_id) {
  return absl::StrCat(absl::StrReplaceAll(run_id, {{"/", "_"}}), "_");
}

absl::StatusOr<LogLayout> LogLayout::Create(absl::string_view base, absl::string_view run_id) {
  LogLayout layout;
  if (base == kLogsOff) return layout;
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
  // mkdtemp chooses six of the eight random characters; the other two are derived from the process id.
  const std::string two = absl::StrCat(absl::Hex(getpid() % 256, absl::kZeroPad2));
  ASSIGN_OR_RETURN(layout.run_dir_,
                   MakeUnique(absl::StrCat(parent, "/", RunDirectoryPrefix(run_id), two, "XXXXXX")));
  return layout;
}

LogLayout::~LogLayout() {
  if (off()) return;
  if (prepared_ != nullptr) prepared_->RemoveIfEmpty();
  const bool is_temporary = !temporary_base_.empty();
  if (is_temporary) {
    for (const Attempt& attempt : attempts_) attempt.RemoveIfEmpty();
  }
  if (is_temporary || attempts_.empty()) rmdir(run_dir_.c_str());
  if (is_temporary) rmdir(temporary_base_.c_str());
}

std::string LogLayout::Attempt::worker_dir(int local_rank) const {
  return absl::StrCat(dir, "/", local_rank);
}

absl::Status LogLayout::Attempt::Make() const {
  for (int i = 0; i < num_workers; ++i) RETURN_IF_ERROR(MakeDirectories(worker_dir(i)));
  return absl::OkStatus();
}

void LogLayout::Attempt::RemoveIfEmpty() const {
  for (int i = 0; i < num_workers; ++i) rmdir(worker_dir(i).c_str());
  rmdir(dir.c_str());
}

std::string LogLayout::AttemptDir(int restart_count) const {
  return off() ? "" : absl::StrCat(run_dir_, "/attempt_", restart_count);
}

void LogLayout::PrepareAttempt(int restart_count, int num_workers) {
  if (off()) return;
  prepared_ = std::make_unique<const Attempt>(Attempt{restart_count, num_workers, AttemptDir(restart_count)});
  if (prepared_->Make().ok()) return;
  prepared_->RemoveIfEmpty();
  prepared_ = nullptr;
}

bool LogLayout::IsPrepared(int restart_count, int num_workers) const {
  return off() || (prepared_ != nullptr && prepared_->restart_count == restart_count &&
                   prepared_->num_workers == num_workers);
}

absl::StatusOr<AttemptFiles> LogLayout::NewAttempt(int restart_count, int num_workers) {
  AttemptFiles files;
  files.workers.resize(static_cast<size_t>(num_workers));
  if (off()) return files;
  const bool is_prepared = IsPrepared(restart_count, num_workers);
  if (prepared_ != nullptr && !is_prepared) prepared_->RemoveIfEmpty();
  prepared_ = nullptr;
  files.dir = AttemptDir(restart_count);
  files.filtered_stdout_log = files.dir + "/filtered_stdout.log";
  files.filtered_stderr_log = files.dir + "/filtered_stderr.log";
  int used = 0;
  Attempt* newest = nullptr;
  for (Attempt& attempt : attempts_) {
    if (attempt.restart_count != restart_count) continue;
    ++used;
    newest = &attempt;
  }
  if (newest != nullptr) {
    const std::string older = absl::StrCat(files.dir, ".", used);
    if (rename(files.dir.c_str(), older.c_str()) != 0 && errno != ENOENT) {
      return absl::ErrnoToStatus(errno,
                                 absl::StrCat("cannot rename the log directory ", files.dir, " to ", older));
    }
    newest->dir = older;
  }
  attempts_.push_back({restart_count, num_workers, files.dir});
  if (!is_prepared) RETURN_IF_ERROR(attempts_.back().Make());
  for (int i = 0; i < num_workers; ++i) {
    const std::string dir = attempts_.back().worker_dir(i);
    files.workers[static_cast<size_t>(i)] = {.stdout_log = dir + "/stdout.log",
                                             .stderr_log = dir + "/stderr.log",
                                             .error_json = dir + "/error.json"};
  }
  return files;
}

}  // namespace ddprun
