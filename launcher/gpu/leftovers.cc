#include "launcher/gpu/leftovers.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "launcher/process/process_tree.h"
#include "launcher/report/terminal_text.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

constexpr size_t kMaxFile = 256 << 10;  // of a file in /proc that is read
constexpr size_t kMaxCommand = 120;
constexpr size_t kMaxJob = 100;
constexpr size_t kMaxLines = 8;
constexpr char kMpsServer[] = "nvidia-cuda-mps";  // its name, of which the kernel keeps 15 bytes

// Returns the file /proc/PID/NAME; empty if it cannot be read.
std::string ReadProcFile(pid_t pid, const char* name) {
  const UniqueFd fd(open(absl::StrCat("/proc/", pid, "/", name).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char bytes[8192];
  ssize_t n = 0;
  while (fd && text.size() < kMaxFile && (n = read(fd.get(), bytes, sizeof bytes)) > 0) {
    text.append(bytes, static_cast<size_t>(n));
  }
  return text;
}

std::string Shortened(std::string text, size_t max) {
  if (text.size() <= max) return text;
  text.resize(max);
  return CleanLine(text + "...");
}

std::string UserOf(pid_t pid) {
  struct stat info;
  if (stat(absl::StrCat("/proc/", pid).c_str(), &info) != 0) return "";
  passwd entry = {};
  passwd* found = nullptr;
  std::vector<char> buffer(16 << 10);
  if (getpwuid_r(info.st_uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return CleanLine(entry.pw_name);
  }
  return absl::StrCat(info.st_uid);
}

std::string CommandOf(pid_t pid, const std::string& comm) {
  std::string text = ReadProcFile(pid, "cmdline");
  std::replace(text.begin(), text.end(), '\0', ' ');
  std::replace(text.begin(), text.end(), '\n', ' ');
  text = CleanLine(text);
  return text.empty() ? absl::StrCat("[", CleanLine(comm), "]") : Shortened(std::move(text), kMaxCommand);
}

std::optional<Duration> AgeOf(uint64_t start_ticks) {
  timespec now = {};
  const int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  if (start_ticks == 0 || ticks_per_second <= 0 || clock_gettime(CLOCK_BOOTTIME, &now) != 0)
    return std::nullopt;
  const int64_t started = static_cast<int64_t>(start_ticks) * 1000 / ticks_per_second;
  return milliseconds(std::max<int64_t>(now.tv_sec * 1000 + now.tv_nsec / 1'000'000 - started, 0));
}

// The job of a launcher, from the environment with which the process was started. Other users' environments
// cannot be read.
std::string JobOf(pid_t pid) {
  std::string id, rank, slurm;
  bool has_id = false, has_round = false;
  const std::string environment = ReadProcFile(pid, "environ");
  for (absl::string_view entry : absl::StrSplit(environment, '\0')) {
    if (absl::ConsumePrefix(&entry, "TORCHELASTIC_RUN_ID=")) {
      has_id = true;
      id = std::string(entry);
    } else if (absl::ConsumePrefix(&entry, "RANK=")) {
      rank = std::string(entry);
    } else if (absl::ConsumePrefix(&entry, "DDPRUN_ROUND=")) {
      has_round = true;
    } else if (absl::ConsumePrefix(&entry, "SLURM_JOB_ID=")) {
      slurm = std::string(entry);
    }
  }
  std::string job;
  if (has_id) {
    job = absl::StrCat(rank.empty() ? "" : absl::StrCat("rank ", rank, " of "),
                       has_round ? "ddprun job " : "torchrun job ", id);
  }
  if (!slurm.empty()) absl::StrAppend(&job, job.empty() ? "" : ", ", "Slurm job ", slurm);
  return Shortened(CleanLine(absl::StrReplaceAll(job, {{"\n", " "}})), kMaxJob);
}

// Whether the process has a device of NVIDIA open. Returns nullopt if its files cannot be listed, or if it has none: a
// process that is ending closes its files before it releases its memory on the GPU.
std::optional<bool> HasDeviceOpen(const std::string& proc, pid_t pid) {
  const std::string folder = absl::StrCat(proc, "/", pid, "/fd");
  std::error_code error;
  bool has_files = false;
  for (std::filesystem::directory_iterator files(folder, error), end; !error && files != end;
       files.increment(error)) {
    std::error_code unreadable;
    const std::string target = std::filesystem::read_symlink(files->path(), unreadable).string();
    if (unreadable == std::errc::no_such_file_or_directory) continue;  // The process has just closed it.
    if (unreadable) return std::nullopt;
    // The path has another beginning if the process has another root directory.
    if (absl::StrContains(target, "/dev/nvidia")) return true;
    has_files = true;
  }
  if (error || !has_files) return std::nullopt;
  return false;
}

std::string Line(const Leftover& process) {
  const std::string memory = process.gpu.bytes ? absl::StrCat(InBytes(*process.gpu.bytes), " of GPU memory")
                                               : "an unknown amount of GPU memory";
  if (!process.visible) {
    return absl::StrCat(
        "  pid ", process.gpu.pid, ", ", memory,
        ": not visible here, because it runs in another container or has just ended; nvidia-smi on the "
        "host shows it");
  }
  return absl::StrCat("  pid ", process.gpu.pid,
                      process.user.empty() ? "" : absl::StrCat(" of user ", process.user), ", ", memory,
                      process.age ? absl::StrCat(", started ", InLargestUnits(*process.age), " ago") : "",
                      process.job.empty() ? "" : absl::StrCat(", ", process.job), ": ", process.command);
}

}  // namespace

std::optional<Leftover> FindLeftover(const GpuProcess& gpu, pid_t root, const std::string& proc) {
  Leftover leftover = {.gpu = gpu};
  const std::optional<ProcessEntry> entry = gpu.pid > 0 ? ReadProcess(gpu.pid) : std::nullopt;
  if (!entry) return leftover;
  if (gpu.pid == root || entry->comm == kMpsServer || DescendsFrom(gpu.pid, root)) return std::nullopt;
  if (!HasDeviceOpen(proc, gpu.pid).value_or(true)) return leftover;
  leftover.visible = true;
  leftover.user = UserOf(gpu.pid);
  leftover.command = CommandOf(gpu.pid, entry->comm);
  leftover.age = AgeOf(entry->start_time);
  leftover.job = JobOf(gpu.pid);
  return leftover;
}

std::string LeftoverWarning(const std::string& gpu, const std::vector<Leftover>& processes) {
  std::vector<std::string> lines = {absl::StrCat(gpu, " is already used by ", processes.size(),
                                                 processes.size() == 1 ? " process" : " processes",
                                                 " of other jobs; the workers may run out of its memory:")};
  std::vector<pid_t> visible;
  for (const Leftover& process : processes) {
    if (lines.size() <= kMaxLines) lines.push_back(Line(process));
    if (process.visible) visible.push_back(process.gpu.pid);
  }
  if (processes.size() > kMaxLines) {
    lines.push_back(absl::StrCat("  and ", processes.size() - kMaxLines, " more: see nvidia-smi"));
  }
  lines.push_back(absl::StrCat(visible.empty() ? "if they are left over, end them where they are visible"
                                               : absl::StrCat("if they are left over, end them with `kill ",
                                                              absl::StrJoin(visible, " "), "`"),
                               ", or give this job other GPUs with CUDA_VISIBLE_DEVICES"));
  return absl::StrJoin(lines, "\n");
}

}  // namespace ddprun
