#include "launcher/logs/log_layout.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

constexpr char kNullDevice[] = "/dev/null";

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

}  // namespace

absl::StatusOr<LogLayout> LogLayout::Create(absl::string_view base, absl::string_view run_id) {
  LogLayout layout;
  if (base == kNullDevice) return layout;
  layout.temporary_ = base.empty();
  std::string parent(base);
  if (layout.temporary_) {
    const char* tmp = getenv("TMPDIR");
    ASSIGN_OR_RETURN(parent, MakeUnique(absl::StrCat(tmp != nullptr && *tmp != '\0' ? tmp : "/tmp",
                                                     "/torchelastic_XXXXXX")));
    layout.to_remove_.push_back(parent);
  } else {
    RETURN_IF_ERROR(MakeDirectories(parent));
    std::error_code ignored;
    parent = std::filesystem::absolute(parent, ignored).string();
  }
  // mkdtemp fills in six of the eight random letters; our pid gives the others.
  const std::string two = absl::StrCat(absl::Hex(getpid() % 256, absl::kZeroPad2));
  ASSIGN_OR_RETURN(
      layout.run_dir_,
      MakeUnique(absl::StrCat(parent, "/", absl::StrReplaceAll(run_id, {{"/", "_"}}), "_", two, "XXXXXX")));
  layout.to_remove_.push_back(layout.run_dir_);
  return layout;
}

LogLayout::~LogLayout() {
  if (!temporary_) return;
  for (auto dir = to_remove_.rbegin(); dir != to_remove_.rend(); ++dir) rmdir(dir->c_str());
}

absl::StatusOr<std::vector<WorkerFiles>> LogLayout::NewAttempt(int restart_count, int num_workers) {
  std::vector<WorkerFiles> files(static_cast<size_t>(num_workers));
  if (run_dir_.empty()) {
    for (WorkerFiles& f : files) f.stdout_log = f.stderr_log = kNullDevice;
    return files;
  }
  const int used = times_used_[restart_count]++;
  const std::string attempt =
      absl::StrCat(run_dir_, "/attempt_", restart_count, used == 0 ? "" : absl::StrCat(".", used));
  to_remove_.push_back(attempt);
  for (int i = 0; i < num_workers; ++i) {
    const std::string dir = absl::StrCat(attempt, "/", i);
    RETURN_IF_ERROR(MakeDirectories(dir));
    to_remove_.push_back(dir);
    files[static_cast<size_t>(i)] = {.stdout_log = dir + "/stdout.log",
                                     .stderr_log = dir + "/stderr.log",
                                     .error_json = dir + "/error.json"};
  }
  return files;
}

}  // namespace ddprun
