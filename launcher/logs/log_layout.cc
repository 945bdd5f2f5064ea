#include "launcher/logs/log_layout.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "os/descriptor.h"
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
  if (prepared_ != nullptr) prepared_->attempt.RemoveIfEmpty();
  const bool is_temporary = !temporary_base_.empty();
  if (is_temporary) {
    for (const Attempt& attempt : attempts_) attempt.RemoveIfEmpty();
  }
  if (is_temporary || attempts_.empty()) rmdir(run_dir_.c_str());
  if (is_temporary) rmdir(temporary_base_.c_str());
}

absl::Status KeepOlderFile(const std::string& path) {
  const auto exists = [](const std::string& name) { return access(name.c_str(), F_OK) == 0; };
  if (!exists(path)) return absl::OkStatus();
  int k = 1;
  while (exists(absl::StrCat(path, ".", k))) ++k;
  const std::string older = absl::StrCat(path, ".", k);
  if (rename(path.c_str(), older.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename ", path, " to ", older));
}

absl::Status WriteNewFile(const std::string& path, const std::string& text) {
  RETURN_IF_ERROR(KeepOlderFile(path));
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  const int error = file ? WriteAll(file.get(), text) : errno;
  if (error == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(error, path);
}

std::string LogLayout::Attempt::AddFolder(int local_rank) {
  const auto taken = [this](const std::string& name) {
    return std::find(folders.begin(), folders.end(), name) != folders.end();
  };
  std::string name = absl::StrCat(local_rank);
  for (int k = 1; taken(name); ++k) name = absl::StrCat(local_rank, ".", k);
  folders.push_back(name);
  writers.insert(local_rank);
  return absl::StrCat(dir, "/", name);
}

absl::Status LogLayout::Attempt::Make() const {
  RETURN_IF_ERROR(MakeDirectories(dir));
  for (const std::string& folder : folders) {
    RETURN_IF_ERROR(MakeDirectories(absl::StrCat(dir, "/", folder)));
  }
  return absl::OkStatus();
}

void LogLayout::Attempt::RemoveIfEmpty() const {
  for (const std::string& folder : folders) rmdir(absl::StrCat(dir, "/", folder).c_str());
  rmdir(dir.c_str());
}

std::string LogLayout::AttemptDir(int restart_count) const {
  return off() ? "" : absl::StrCat(run_dir_, "/attempt_", restart_count);
}

void LogLayout::PrepareAttempt(int restart_count, int num_workers) {
  if (off()) return;
  Prepared prepared = {num_workers, {.restart_count = restart_count, .dir = AttemptDir(restart_count)}};
  for (int i = 0; i < num_workers; ++i) prepared.attempt.AddFolder(i);
  if (!prepared.attempt.Make().ok()) return prepared.attempt.RemoveIfEmpty();
  prepared_ = std::make_unique<const Prepared>(std::move(prepared));
}

bool LogLayout::IsPrepared(int restart_count, int num_workers) const {
  return off() || (prepared_ != nullptr && prepared_->attempt.restart_count == restart_count &&
                   prepared_->num_workers == num_workers);
}

absl::StatusOr<LogLayout::Attempt*> LogLayout::AddAttempt(int restart_count, Attempt* newest) {
  const std::string dir = AttemptDir(restart_count);
  if (newest != nullptr) {
    const auto used = std::count_if(attempts_.begin(), attempts_.end(), [&](const Attempt& attempt) {
      return attempt.restart_count == restart_count;
    });
    const std::string older = absl::StrCat(dir, ".", used);
    if (rename(dir.c_str(), older.c_str()) != 0 && errno != ENOENT) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename the log directory ", dir, " to ", older));
    }
    newest->dir = older;
  }
  return &attempts_.emplace_back(Attempt{.restart_count = restart_count, .dir = dir});
}

absl::StatusOr<AttemptFiles> LogLayout::NewAttempt(int restart_count, int num_workers,
                                                   const std::set<int>& kept) {
  AttemptFiles files;
  files.workers.resize(static_cast<size_t>(num_workers));
  if (off()) return files;
  const bool is_prepared = IsPrepared(restart_count, num_workers);
  if (prepared_ != nullptr && !is_prepared) prepared_->attempt.RemoveIfEmpty();
  prepared_ = nullptr;
  files.dir = AttemptDir(restart_count);
  files.filtered_stdout_log = files.dir + "/filtered_stdout.log";
  files.filtered_stderr_log = files.dir + "/filtered_stderr.log";
  Attempt* attempt = nullptr;
  for (Attempt& earlier : attempts_) {
    std::erase_if(earlier.writers, [&](int local_rank) { return kept.count(local_rank) == 0; });
    if (earlier.restart_count == restart_count) attempt = &earlier;
  }
  files.added = attempt != nullptr && !attempt->writers.empty();
  if (!files.added) {
    ASSIGN_OR_RETURN(attempt, AddAttempt(restart_count, attempt));
  }
  for (int i = 0; i < num_workers; ++i) {
    if (kept.count(i) > 0) continue;
    const std::string dir = attempt->AddFolder(i);
    files.workers[static_cast<size_t>(i)] = {.stdout_log = dir + "/stdout.log",
                                             .stderr_log = dir + "/stderr.log",
                                             .error_json = dir + "/error.json"};
  }
  files.in_use.push_back(files.dir);
  for (const Attempt& earlier : attempts_) {
    if (!earlier.writers.empty() && &earlier != attempt) files.in_use.push_back(earlier.dir);
  }
  if (!is_prepared) RETURN_IF_ERROR(attempt->Make());
  return files;
}

}  // namespace ddprun
