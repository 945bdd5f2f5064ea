#include "launcher/progress/process_sample.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/process/process_tree.h"

namespace ddprun {
namespace {

using State = WorkerEvidence::State;

constexpr int kMaxProcesses = 1 << 16;     // of the machine
constexpr Duration kBetween = seconds(1);  // two looks
// A worker that uses less than this share of a core between two looks sleeps.
constexpr double kRunningShare = 0.1;

std::string ReadSmall(const std::string& path) {
  std::ifstream file(path);
  std::string text(4096, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

// The numbers of the entries of a directory.
std::vector<pid_t> Numbers(const std::string& path, int max) {
  std::vector<pid_t> numbers;
  DIR* const dir = opendir(path.c_str());
  if (dir == nullptr) return numbers;
  while (const dirent* entry = readdir(dir)) {
    int number = 0;
    if (static_cast<int>(numbers.size()) < max && absl::SimpleAtoi(entry->d_name, &number))
      numbers.push_back(number);
  }
  closedir(dir);
  return numbers;
}

// A line of /proc/PID/stat.
struct Stat {
  std::string name;
  char state = '?';
  pid_t parent = 0;
  Duration cpu{};
  uint64_t start_time = 0;
};

std::optional<Stat> ReadStat(const std::string& path) {
  const std::string text = ReadSmall(path);
  const size_t open = text.find('('), close = text.rfind(')');  // the name may contain any bytes
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  std::istringstream rest(text.substr(close + 1));
  Stat stat{.name = text.substr(open + 1, close - open - 1)};
  std::string skipped;
  int64_t user = 0, system = 0;
  rest >> stat.state >> stat.parent;
  for (int i = 5; i <= 13; ++i) rest >> skipped;
  rest >> user >> system;
  for (int i = 16; i <= 21; ++i) rest >> skipped;
  rest >> stat.start_time;
  if (!rest) return std::nullopt;
  static const int64_t kTicks = sysconf(_SC_CLK_TCK);
  stat.cpu = std::chrono::nanoseconds((user + system) * (1'000'000'000 / kTicks));
  return stat;
}

pid_t TracerOf(pid_t pid) {
  const std::string status = ReadSmall(absl::StrCat("/proc/", pid, "/status"));
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    int tracer = 0;
    if (absl::ConsumePrefix(&line, "TracerPid:") && absl::SimpleAtoi(line, &tracer)) return tracer;
  }
  return 0;
}

std::string SystemCallOf(pid_t pid, pid_t tid) {
  const std::string text = ReadSmall(absl::StrCat("/proc/", pid, "/task/", tid, "/syscall"));
  int64_t number = -1;
  if (!absl::SimpleAtoi(text.substr(0, text.find(' ')), &number) || number < 0) return "";
  return SystemCallName(number);
}

// The processes below each of `roots`, and the roots themselves.
std::map<pid_t, std::vector<pid_t>> Trees(const std::vector<pid_t>& roots) {
  std::map<pid_t, std::vector<pid_t>> children;
  for (const pid_t pid : Numbers("/proc", kMaxProcesses)) {
    if (const auto stat = ReadStat(absl::StrCat("/proc/", pid, "/stat")))
      children[stat->parent].push_back(pid);
  }
  std::map<pid_t, std::vector<pid_t>> trees;
  for (const pid_t root : roots) {
    std::vector<pid_t>& tree = trees[root] = {root};
    std::set<pid_t> seen = {root};
    for (size_t i = 0; i < tree.size(); ++i) {
      for (const pid_t child : children[tree[i]]) {
        if (seen.insert(child).second) tree.push_back(child);
      }
    }
  }
  return trees;
}

// "read, in nfs_wait_bit_killable"
std::string Wait(const ThreadSample& thread) {
  if (thread.system_call.empty()) return thread.kernel_wait;
  return thread.kernel_wait.empty() ? thread.system_call
                                    : absl::StrCat(thread.system_call, ", in ", thread.kernel_wait);
}

std::string Named(const ThreadSample& thread, pid_t worker) {
  if (thread.pid == worker) return Wait(thread);
  const std::string wait = Wait(thread);
  return absl::StrCat(wait, wait.empty() ? "" : " ", "(its process ", thread.pid, ", ", thread.name, ")");
}

const ThreadSample* Find(const ProcessSample& sample, const ThreadSample& thread) {
  const auto it = std::find_if(
      sample.threads.begin(), sample.threads.end(),
      [&thread](const ThreadSample& t) { return t.tid == thread.tid && t.start_time == thread.start_time; });
  return it == sample.threads.end() ? nullptr : &*it;
}

}  // namespace

std::map<pid_t, ProcessSample> SampleProcesses(const std::vector<pid_t>& roots, const SampleLimits& limits) {
  const auto end = std::chrono::steady_clock::now() + limits.time;
  int left = limits.threads;
  std::map<pid_t, ProcessSample> samples;
  for (const auto& [root, tree] : Trees(roots)) {
    ProcessSample& sample = samples[root];
    for (const pid_t pid : tree) {
      for (const pid_t tid : Numbers(absl::StrCat("/proc/", pid, "/task"), limits.threads + 1)) {
        if (left-- <= 0 || std::chrono::steady_clock::now() >= end) {
          sample.complete = false;
          break;
        }
        const auto stat = ReadStat(absl::StrCat("/proc/", pid, "/task/", tid, "/stat"));
        if (!stat || stat->state == 'Z' || stat->state == 'X') continue;
        ThreadSample thread{.pid = pid,
                            .tid = tid,
                            .state = stat->state,
                            .start_time = stat->start_time,
                            .cpu = stat->cpu,
                            .name = stat->name,
                            .kernel_wait = {},
                            .system_call = {}};
        if (stat->state != 'R') {
          thread.kernel_wait = KernelWait(tid);
          thread.system_call = SystemCallOf(pid, tid);
        }
        sample.threads.push_back(std::move(thread));
      }
      if (sample.tracer != 0) continue;
      sample.tracer = TracerOf(pid);
      if (sample.tracer == 0) continue;
      const auto tracer = ReadStat(absl::StrCat("/proc/", sample.tracer, "/stat"));
      sample.tracer_name = tracer ? tracer->name : "";
    }
  }
  return samples;
}

void Judge(const ProcessSample& before, const ProcessSample& after, Duration between,
           WorkerEvidence& evidence) {
  if (after.threads.empty()) {
    evidence.state = before.threads.empty() ? State::kUnknown : State::kEnded;
    return;
  }
  const pid_t worker = after.threads[0].pid;
  if (after.tracer != 0) {
    evidence.state = State::kTraced;
    evidence.place =
        absl::StrCat(after.tracer_name.empty() ? "process" : after.tracer_name, " (pid ", after.tracer, ")");
    return;
  }
  const ThreadSample* blocked = nullptr;
  Duration used{};
  for (const ThreadSample& thread : after.threads) {
    const ThreadSample* const earlier = Find(before, thread);
    const Duration cpu = earlier == nullptr ? thread.cpu : thread.cpu - earlier->cpu;
    used += cpu;
    if (earlier == nullptr || earlier->state != thread.state) continue;
    if (thread.state == 'T' && thread.pid == worker) {
      evidence.state = State::kStopped;
      evidence.place.clear();
      return;
    }
    if (thread.state == 'D' && cpu == Duration::zero() && blocked == nullptr) blocked = &thread;
  }
  if (blocked != nullptr) {
    evidence.state = State::kBlocked;
    evidence.place = Named(*blocked, worker);
  } else if (used > between * kRunningShare) {
    evidence.state = State::kRunning;
    evidence.place.clear();
  } else {
    evidence.state = State::kSleeping;
    evidence.place = Wait(after.threads[0]);
  }
}

void JudgeProcesses(std::vector<WorkerEvidence>& workers) {
  std::vector<pid_t> roots;
  for (const WorkerEvidence& worker : workers) {
    if (worker.pid > 0) roots.push_back(static_cast<pid_t>(worker.pid));
  }
  const auto start = std::chrono::steady_clock::now();
  const std::map<pid_t, ProcessSample> before = SampleProcesses(roots);
  std::this_thread::sleep_until(start + kBetween);
  const Duration between = std::chrono::steady_clock::now() - start;
  const std::map<pid_t, ProcessSample> after = SampleProcesses(roots);
  for (WorkerEvidence& worker : workers) {
    const auto root = static_cast<pid_t>(worker.pid);
    if (root > 0) Judge(before.at(root), after.at(root), between, worker);
  }
}

std::string SystemCallName(long number) {
  static const std::map<long, const char*> kNames = {
#define DDPRUN_NAME(name) {SYS_##name, #name}
      DDPRUN_NAME(read),          DDPRUN_NAME(write),
      DDPRUN_NAME(readv),         DDPRUN_NAME(writev),
      DDPRUN_NAME(pread64),       DDPRUN_NAME(pwrite64),
      DDPRUN_NAME(openat),        DDPRUN_NAME(close),
      DDPRUN_NAME(fsync),         DDPRUN_NAME(fdatasync),
      DDPRUN_NAME(newfstatat),    DDPRUN_NAME(statx),
      DDPRUN_NAME(getdents64),    DDPRUN_NAME(ioctl),
      DDPRUN_NAME(fcntl),         DDPRUN_NAME(flock),
      DDPRUN_NAME(futex),         DDPRUN_NAME(ppoll),
      DDPRUN_NAME(pselect6),      DDPRUN_NAME(epoll_pwait),
      DDPRUN_NAME(nanosleep),     DDPRUN_NAME(clock_nanosleep),
      DDPRUN_NAME(wait4),         DDPRUN_NAME(waitid),
      DDPRUN_NAME(recvfrom),      DDPRUN_NAME(recvmsg),
      DDPRUN_NAME(sendto),        DDPRUN_NAME(sendmsg),
      DDPRUN_NAME(accept),        DDPRUN_NAME(accept4),
      DDPRUN_NAME(connect),       DDPRUN_NAME(rt_sigtimedwait),
      DDPRUN_NAME(rt_sigsuspend), DDPRUN_NAME(semtimedop),
      DDPRUN_NAME(msgrcv),        DDPRUN_NAME(mmap),
      DDPRUN_NAME(munmap),
#ifdef SYS_poll
      DDPRUN_NAME(poll),          DDPRUN_NAME(select),
      DDPRUN_NAME(epoll_wait),    DDPRUN_NAME(open),
      DDPRUN_NAME(stat),          DDPRUN_NAME(pause),
#endif
#undef DDPRUN_NAME
  };
  const auto name = kNames.find(number);
  return name == kNames.end() ? absl::StrCat("system call ", number) : name->second;
}

}  // namespace ddprun
