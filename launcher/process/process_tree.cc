#include "launcher/process/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "os/descriptor.h"

namespace ddprun {
namespace {

// Limit on the number of searches in StopAndKillDescendants. A few searches are usually enough, even for a
// process that forks endlessly, because each search stops every process that it finds.
constexpr int kMaxLooks = 64;
constexpr int kMaxAncestors = 1000;
// The kernel's PID_MAX_LIMIT. The machine may have a lower limit, but that limit can be read only in /proc,
// which is not usable when this constant is needed.
constexpr pid_t kMaxPid = 4 << 20;
// Number of pids in a slice. Each call of ChildrenByWait checks one slice. The number of slices is odd, so
// that a caller that uses the result of only every second call still covers all slices.
constexpr pid_t kPidSlice = kMaxPid / 31 + 1;
// Each call of ChildrenByWait also checks this many pids on either side of our own pid, because the pids of
// children are usually near our own.
constexpr pid_t kNearPids = 1 << 15;

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};
using Directory = std::unique_ptr<DIR, CloseDir>;

size_t ReadFile(int dir, const char* path, char* buffer, size_t size) {
  UniqueFd fd(openat(dir, path, O_RDONLY | O_CLOEXEC));
  if (!fd) return 0;
  const ssize_t n = read(fd.get(), buffer, size - 1);
  buffer[std::max<ssize_t>(n, 0)] = '\0';
  return n > 0 ? n : 0;
}

// The sum of the two numbers, in clock ticks, with which `text` begins.
Duration ProcessorTime(const char* text) {
  static const int64_t kTicksPerSecond = sysconf(_SC_CLK_TCK);
  char* rest = nullptr;
  const uint64_t user = std::strtoull(text, &rest, 10);
  return std::chrono::nanoseconds((user + std::strtoull(rest, nullptr, 10)) *
                                  (1'000'000'000 / kTicksPerSecond));
}

// Reads the file PID/stat in the directory `proc`; returns nullopt if this fails. The file has the form
// "PID (COMM) STATE PPID ...". COMM may contain spaces and parentheses, so it ends at the last ')'.
std::optional<ProcessEntry> ReadEntry(int proc, const char* pid) {
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "%s/stat", pid);
  if (ReadFile(proc, path, text, sizeof text) == 0) return std::nullopt;
  const char* open = std::strchr(text, '(');
  const char* close = std::strrchr(text, ')');
  ProcessEntry entry;
  if (open == nullptr || close == nullptr || close < open ||
      std::sscanf(close + 1, " %c %d", &entry.state, &entry.parent) != 2) {
    return std::nullopt;
  }
  // Field 3 follows the name; fields 14 to 17 are processor times, field 22 is the start time.
  const char* field = close + 1;
  for (int i = 3; field != nullptr && i < 22; ++i) {
    if (i == 14) entry.cpu = ProcessorTime(field);
    if (i == 16) entry.ended_children_cpu = ProcessorTime(field);
    field = std::strchr(field + 1, ' ');
  }
  if (field != nullptr) entry.start_time = std::strtoull(field, nullptr, 10);
  entry.pid = entry.thread = std::atoi(pid);
  entry.comm.assign(open + 1, close);
  return entry;
}

// Sets `state` and `thread` of `entry` if the main thread has ended but other threads have not; see
// ProcessEntry::state.
void LookAtThreads(int proc, ProcessEntry& entry) {
  if (!entry.dead()) return;
  char path[64];
  std::snprintf(path, sizeof path, "%d/task", entry.pid);
  const int fd = openat(proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const Directory tasks(fd < 0 ? nullptr : fdopendir(fd));
  if (tasks == nullptr) return;
  while (const dirent* name = readdir(tasks.get())) {
    if (name->d_name[0] < '1' || name->d_name[0] > '9') continue;
    const auto thread = ReadEntry(fd, name->d_name);
    if (!thread || thread->dead() || entry.state == 'D') continue;
    entry.state = thread->state;
    entry.thread = thread->pid;
  }
}

UniqueFd OpenProc() { return UniqueFd(open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC)); }

// Calls waitid() without reaping. Returns 'Z' if a matching child has ended, '?' if there are matching
// children but none has ended, and nullopt if there is no matching child.
std::optional<char> StateOfChild(idtype_t type, pid_t pid) {
  siginfo_t info = {};
  if (waitid(type, pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) return std::nullopt;
  return info.si_pid != 0 ? 'Z' : '?';
}

std::vector<ProcessEntry> ChildrenByWait(const std::vector<pid_t>& except) {
  std::vector<ProcessEntry> found;
  const auto look = [&](pid_t pid) {
    const std::optional<char> state = StateOfChild(P_PID, pid);
    if (!state || std::find(except.begin(), except.end(), pid) != except.end()) return;
    found.push_back({.pid = pid, .parent = getpid(), .state = *state, .thread = pid});
  };
  const pid_t near_begin = std::max(1, getpid() - kNearPids), near_end = getpid() + kNearPids;
  for (pid_t pid = near_begin; pid < near_end; ++pid) look(pid);
  // The first pid of the next slice. No lock is needed, because the warden and the agent each call this
  // function from only one thread.
  static pid_t next = 1;
  for (pid_t i = 0; i < kPidSlice; ++i, ++next) {
    if (next > kMaxPid) next = 1;
    if (next < near_begin || next >= near_end) look(next);
  }
  const bool foreign = std::any_of(except.begin(), except.end(),
                                   [](pid_t pid) { return StateOfChild(P_PID, pid).has_value(); });
  if (found.empty() && !foreign) found.push_back({.pid = 0, .parent = getpid()});
  return found;
}

}  // namespace

std::optional<ProcessEntry> ReadProcess(pid_t pid) {
  if (!ProcShowsThisProcess()) return std::nullopt;
  const UniqueFd proc = OpenProc();
  auto entry = ReadEntry(proc.get(), std::to_string(pid).c_str());
  if (entry) LookAtThreads(proc.get(), *entry);
  return entry;
}

bool ProcShowsThisProcess() {
  char self[16] = {};
  return readlink("/proc/self", self, sizeof self - 1) > 0 && std::atoi(self) == getpid();
}

std::vector<ProcessEntry> Descendants(const std::vector<pid_t>& except) {
  std::vector<ProcessEntry> all = AllProcesses();
  std::unordered_multimap<pid_t, size_t> children;
  for (size_t i = 0; i < all.size(); ++i) children.emplace(all[i].parent, i);
  if (children.count(getpid()) == 0) {
    return StateOfChild(P_ALL, 0) ? ChildrenByWait(except) : std::vector<ProcessEntry>();
  }
  const UniqueFd proc = OpenProc();
  std::vector<ProcessEntry> found;
  std::unordered_set<pid_t> seen(except.begin(), except.end());
  std::vector<pid_t> to_visit = {getpid()};
  while (!to_visit.empty()) {
    const pid_t parent = to_visit.back();
    to_visit.pop_back();
    const auto [begin, end] = children.equal_range(parent);
    for (auto it = begin; it != end; ++it) {
      ProcessEntry& child = all[it->second];
      if (!seen.insert(child.pid).second) continue;
      to_visit.push_back(child.pid);
      LookAtThreads(proc.get(), child);
      found.push_back(std::move(child));
    }
  }
  return found;
}

std::vector<ProcessEntry> AllProcesses() {
  std::vector<ProcessEntry> all;
  if (!ProcShowsThisProcess()) return all;
  const Directory dir(opendir("/proc"));
  if (dir == nullptr) return all;
  while (const dirent* name = readdir(dir.get())) {
    if (name->d_name[0] < '1' || name->d_name[0] > '9') continue;
    if (auto entry = ReadEntry(dirfd(dir.get()), name->d_name)) all.push_back(*std::move(entry));
  }
  return all;
}

std::vector<ProcessEntry> Threads(pid_t pid, size_t max) {
  std::vector<ProcessEntry> threads;
  if (!ProcShowsThisProcess()) return threads;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/task", pid);
  const Directory tasks(opendir(path));
  if (tasks == nullptr) return threads;
  while (const dirent* name = readdir(tasks.get())) {
    if (threads.size() == max) break;
    if (name->d_name[0] < '1' || name->d_name[0] > '9') continue;
    if (auto entry = ReadEntry(dirfd(tasks.get()), name->d_name)) threads.push_back(*std::move(entry));
  }
  return threads;
}

pid_t TracerOf(pid_t pid) {
  char path[64], text[4096];
  std::snprintf(path, sizeof path, "/proc/%d/status", pid);
  if (ReadFile(AT_FDCWD, path, text, sizeof text) == 0) return 0;
  constexpr char kField[] = "\nTracerPid:";
  const char* const field = std::strstr(text, kField);
  return field == nullptr ? 0 : std::atoi(field + sizeof kField - 1);
}

bool DescendsFrom(pid_t pid, pid_t root) {
  if (!ProcShowsThisProcess()) return false;
  const UniqueFd proc = OpenProc();
  // The loop is bounded, because the chain of parents may change during the search and then never end.
  for (int i = 0; i < kMaxAncestors && pid > 1; ++i) {
    const auto entry = ReadEntry(proc.get(), std::to_string(pid).c_str());
    if (!entry) return false;
    pid = entry->parent;
    if (pid == root) return true;
  }
  return false;
}

std::vector<pid_t> ChildrenOfThisProcess() {
  // Fast path for the usual case, in which there are no children.
  if (!StateOfChild(P_ALL, 0)) return {};
  std::vector<pid_t> children;
  for (const ProcessEntry& p : Descendants()) {
    if (p.parent == getpid()) children.push_back(p.pid);
  }
  return children;
}

bool SignalProcess(const ProcessEntry& process, int signo) {
  if (process.pid <= 0) return false;
  const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  // Read the start time again after opening the pidfd. If the start time is unchanged, the pidfd refers to
  // the process that `process` describes. A start time of 0 means a child that is not visible in /proc. A
  // child needs no check, because it keeps its pid until it is reaped.
  if (process.start_time != 0) {
    const auto now = ReadEntry(OpenProc().get(), std::to_string(process.pid).c_str());
    if (!now || now->start_time != process.start_time) return false;
  }
  if (pidfd) {
    if (syscall(SYS_pidfd_send_signal, pidfd.get(), signo, nullptr, 0) == 0) return true;
    if (errno == ESRCH) return false;
  }
  return kill(process.pid, signo) == 0;
}

std::vector<ProcessEntry> StopAndKillDescendants(const std::vector<pid_t>& except) {
  std::unordered_set<pid_t> stopped;
  std::vector<ProcessEntry> alive;
  for (int look = 0; look < kMaxLooks; ++look) {
    alive = Descendants(except);
    std::erase_if(alive, [](const ProcessEntry& p) { return p.dead(); });
    bool found_new = false;
    for (const ProcessEntry& p : alive) {
      if (!stopped.insert(p.pid).second) continue;
      found_new = true;
      SignalProcess(p, SIGSTOP);
    }
    // A start time of 0 means that the search used waitid(). Such a search is slow and finds only children of
    // this process, so it is not repeated.
    if (!found_new || alive[0].start_time == 0) break;
  }
  for (const ProcessEntry& p : alive) SignalProcess(p, SIGKILL);
  return alive;
}

std::string KernelWait(pid_t thread) {
  if (!ProcShowsThisProcess()) return "";
  char path[32], text[128];
  std::snprintf(path, sizeof path, "/proc/%d/wchan", thread);
  if (ReadFile(AT_FDCWD, path, text, sizeof text) == 0 || std::strcmp(text, "0") == 0) return "";
  return text;
}

}  // namespace ddprun
