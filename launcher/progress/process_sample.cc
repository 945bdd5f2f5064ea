#include "launcher/progress/process_sample.h"

#include <sys/syscall.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

using State = WorkerEvidence::State;

constexpr Duration kBetween = seconds(1);  // two looks
// A worker that uses less than this share of a core between two looks sleeps.
constexpr double kRunningShare = 0.1;

std::string SystemCallOf(pid_t pid, pid_t tid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/task/", tid, "/syscall"));
  int64_t number = -1;  // the file has "running" for a thread that is in none
  return file >> number && number >= 0 ? SystemCallName(number) : "";
}

// The processes below each of `roots`, and the roots themselves.
std::map<pid_t, std::vector<pid_t>> Trees(const std::vector<pid_t>& roots) {
  std::map<pid_t, std::vector<pid_t>> children;
  for (const ProcessEntry& process : AllProcesses()) children[process.parent].push_back(process.pid);
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
  return absl::StrCat(wait, wait.empty() ? "" : " ", "(its process ", thread.pid, ", ", thread.thread.comm,
                      ")");
}

const ThreadSample* Find(const ProcessSample& sample, const ThreadSample& thread) {
  const auto it =
      std::find_if(sample.threads.begin(), sample.threads.end(), [&thread](const ThreadSample& t) {
        return t.thread.thread == thread.thread.thread && t.thread.start_time == thread.thread.start_time;
      });
  return it == sample.threads.end() ? nullptr : &*it;
}

}  // namespace

std::map<pid_t, ProcessSample> SampleProcesses(const std::vector<pid_t>& roots, const SampleLimits& limits) {
  const auto end = std::chrono::steady_clock::now() + limits.time;
  size_t left = limits.threads;
  std::map<pid_t, ProcessSample> samples;
  for (const auto& [root, tree] : Trees(roots)) {
    ProcessSample& sample = samples[root];
    for (const pid_t pid : tree) {
      const std::vector<ProcessEntry> threads = Threads(pid, left + 1);
      for (const ProcessEntry& entry : threads) {
        if (left == 0 || std::chrono::steady_clock::now() >= end) {
          sample.complete = false;
          break;
        }
        --left;
        if (entry.dead()) continue;
        ThreadSample& thread = sample.threads.emplace_back(ThreadSample{.pid = pid, .thread = entry});
        if (entry.state == 'R') continue;
        thread.kernel_wait = KernelWait(entry.thread);
        thread.system_call = SystemCallOf(pid, entry.thread);
      }
      if (sample.tracer != 0) continue;
      sample.tracer = TracerOf(pid);
      if (sample.tracer != 0 && DescendsFrom(sample.tracer, getpid())) sample.tracer = 0;  // a tool of ours
      if (sample.tracer == 0) continue;
      const auto tracer = ReadProcess(sample.tracer);
      sample.tracer_name = tracer ? tracer->comm : "";
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
    const Duration cpu = earlier == nullptr ? thread.thread.cpu : thread.thread.cpu - earlier->thread.cpu;
    used += cpu;
    if (earlier == nullptr || earlier->thread.state != thread.thread.state) continue;
    if (thread.thread.state == 'T' && thread.pid == worker) {
      evidence.state = State::kStopped;
      evidence.place.clear();
      return;
    }
    if (thread.thread.state == 'D' && cpu == Duration::zero() && blocked == nullptr) blocked = &thread;
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

bool JudgeProcesses(std::vector<WorkerEvidence>& workers) {
  std::vector<pid_t> roots;
  for (const WorkerEvidence& worker : workers) {
    if (worker.pid > 0) roots.push_back(static_cast<pid_t>(worker.pid));
  }
  const auto start = std::chrono::steady_clock::now();
  const std::map<pid_t, ProcessSample> before = SampleProcesses(roots);
  std::this_thread::sleep_until(start + kBetween);
  const Duration between = std::chrono::steady_clock::now() - start;
  const std::map<pid_t, ProcessSample> after = SampleProcesses(roots);
  bool complete = true;
  for (WorkerEvidence& worker : workers) {
    const auto root = static_cast<pid_t>(worker.pid);
    if (root <= 0) continue;
    Judge(before.at(root), after.at(root), between, worker);
    complete &= after.at(root).complete;
  }
  return complete;
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
