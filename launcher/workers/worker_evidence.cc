// The part of LocalWorkers that finds out what the workers do.
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "launcher/agent/background_task.h"
#include "launcher/progress/process_sample.h"
#include "launcher/progress/worker_activity.h"
#include "launcher/stacks/stacks.h"
#include "launcher/workers/local_workers.h"

namespace ddprun {
namespace {

// With the time that JudgeProcesses takes, less than kEvidenceLimit.
constexpr StackLimits kStackLimits = {.tool = seconds(3), .all = seconds(3), .pause = milliseconds(500)};

// "all_reduce (c10d.py:9), called from <module> (train.py:12)"
std::string PlaceOf(const ThreadStack& thread) {
  const std::string innermost = thread.folded.substr(0, thread.folded.find('\n'));
  if (thread.program_frame.empty() || thread.program_frame == innermost) return innermost;
  return absl::StrCat(innermost, ", called from ", thread.program_frame);
}

// Adds the stacks of the main threads, Python ones of the first process of each worker that has any, else native ones. Returns what
// is missing. Blocks.
std::vector<std::string> AddStacks(std::vector<WorkerEvidence>& workers) {
  std::vector<pid_t> all, native;
  std::map<pid_t, std::vector<pid_t>> processes;  // by worker
  for (const WorkerEvidence& worker : workers) {
    const auto root = static_cast<pid_t>(worker.pid);
    if (root <= 0) continue;
    processes[root] = ProcessesOf(root);
    all.insert(all.end(), processes[root].begin(), processes[root].end());
  }
  const TimePoint begun = std::chrono::steady_clock::now();
  const Stacks python = CollectStacks(all, StackKind::kWithoutPause, kStackLimits);
  const auto add = [](const Stacks& stacks, pid_t pid, WorkerEvidence& worker) {
    const auto found = stacks.of.find(pid);
    if (found == stacks.of.end() || !found->second[0].main) return false;
    const ThreadStack& main = found->second[0];
    worker.stack = main.folded;
    worker.place = absl::StrCat(PlaceOf(main), worker.place.empty() ? "" : ": ", worker.place);
    return true;
  };
  for (WorkerEvidence& worker : workers) {
    const std::vector<pid_t>& tree = processes[static_cast<pid_t>(worker.pid)];
    const bool found =
        std::any_of(tree.begin(), tree.end(), [&](pid_t pid) { return add(python, pid, worker); });
    // A debugger that waits for a process in the kernel would hang, too.
    if (!found && !tree.empty() && worker.state != WorkerEvidence::State::kBlocked) native.push_back(tree[0]);
  }
  std::vector<std::string> missing = python.missing;
  if (native.empty()) return missing;
  // The time may not suffice for all, and the places of those that wait for the others matter least.
  std::stable_partition(native.begin(), native.end(), [&](pid_t pid) {
    return std::any_of(workers.begin(), workers.end(), [pid](const WorkerEvidence& worker) {
      return worker.pid == pid && !(worker.operation && worker.operation->in_flight);
    });
  });
  StackLimits left = kStackLimits;
  left.all = left.tool =
      std::max<Duration>(left.all - (std::chrono::steady_clock::now() - begun), milliseconds(100));
  const Stacks others = CollectStacks(native, StackKind::kNative, left);
  for (WorkerEvidence& worker : workers) {
    if (worker.stack.empty()) add(others, static_cast<pid_t>(worker.pid), worker);
  }
  for (const std::string& line : others.missing) {
    if (std::find(missing.begin(), missing.end(), line) == missing.end()) missing.push_back(line);
  }
  return missing;
}

}  // namespace

void LocalWorkers::CollectEvidence(
    std::function<void(std::vector<WorkerEvidence>, std::vector<std::string> missing)> done) {
  std::vector<WorkerEvidence> workers;
  for (const auto& [id, worker] : workers_) {
    WorkerEvidence& evidence = workers.emplace_back();
    evidence.local_rank = worker.local_rank;
    evidence.pid = worker.pid;
    if (const std::optional<WorkerReport> report = ReportOf(worker)) {
      evidence.step = report->step;
      evidence.phase = std::string(NameOf(report->phase));
    }
    if (reports_ != nullptr) evidence.operation = reports_->Operation(worker.local_rank);
  }
  struct Judged {
    std::vector<WorkerEvidence> workers;
    std::vector<std::string> missing = {};
  };
  ComputeInBackground<Judged>(
      io_, kEvidenceLimit,
      [workers] {
        Judged judged{workers};
        if (!JudgeProcesses(judged.workers))
          judged.missing.emplace_back("there are too many threads to look at all of them");
        const std::vector<std::string> missing = AddStacks(judged.workers);
        judged.missing.insert(judged.missing.end(), missing.begin(), missing.end());
        return judged;
      },
      [workers, done = std::move(done)](std::optional<Judged> judged) {
        if (judged) return done(std::move(judged->workers), std::move(judged->missing));
        done(workers, {absl::StrCat("/proc has not answered within ", InSeconds(kEvidenceLimit))});
      });
}

AgentWorld::WorkerSigns LocalWorkers::Signs() {
  return {.touched = heartbeats_.Changed(), .output_held = !console_.out().idle() || !console_.err().idle()};
}

void LocalWorkers::LookForActivity(std::function<void(std::vector<LocalRank>)> done) {
  if (std::exchange(looking_, true)) return;
  ComputeInBackground<Activities>(
      io_, kEvidenceLimit, [pids = Pids()] { return ReadActivities(pids); },
      [this, done = std::move(done)](std::optional<Activities> activities) {
        if (!activities) return;  // looking_ remains: a thread that is blocked in /proc is enough
        looking_ = false;
        std::vector<LocalRank> workers;
        for (const pid_t pid : activity_.Progressed(*std::move(activities), Now())) {
          for (const auto& [id, worker] : workers_) {
            if (worker.pid == pid) workers.push_back(worker.local_rank);
          }
        }
        done(workers);
      });
}

}  // namespace ddprun
