// The part of LocalWorkers that finds out what the workers do.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
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

// With the time that JudgeProcesses usually takes, less than kEvidenceLimit. What comes later is lost.
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
    // A tool that waits for a process that is blocked in the kernel may hang, too.
    if (root <= 0 || worker.state == WorkerEvidence::State::kBlocked) continue;
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
    if (!found && !tree.empty()) native.push_back(tree[0]);
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
    if (reports_ != nullptr) evidence.operation = reports_->Operation(worker.local_rank, worker.pid);
  }
  // What is known so far, also if the stacks do not come.
  struct Known {
    std::mutex mu;
    std::optional<std::vector<WorkerEvidence>> judged;
    std::vector<std::string> missing;
  };
  const auto known = std::make_shared<Known>();
  RunInBackground(
      io_, kEvidenceLimit,
      [workers, known] {
        std::vector<WorkerEvidence> judged = workers;
        const bool complete = JudgeProcesses(judged);
        {
          const std::lock_guard lock(known->mu);
          known->judged = judged;
          if (!complete) known->missing.emplace_back("there are too many threads to look at all of them");
        }
        const std::vector<std::string> missing = AddStacks(judged);
        const std::lock_guard lock(known->mu);
        known->judged = std::move(judged);
        known->missing.insert(known->missing.end(), missing.begin(), missing.end());
      },
      [workers, known, done = std::move(done)](bool in_time) {
        const std::lock_guard lock(known->mu);
        std::vector<std::string> missing = known->missing;
        if (!in_time) {
          missing.push_back(absl::StrCat(
              known->judged ? "the stacks have not come within " : "/proc has not answered within ",
              InSeconds(kEvidenceLimit)));
        }
        done(known->judged.value_or(workers), std::move(missing));
      });
}

std::optional<Duration> LocalWorkers::Waited(LocalRank local_rank) const {
  const Worker* const worker = reports_ == nullptr ? nullptr : Running(local_rank);
  return worker == nullptr ? std::nullopt : reports_->Waited(local_rank, worker->pid);
}

AgentWorld::WorkerSigns LocalWorkers::Signs() {
  return {.touched = heartbeats_.Changed(),
          .output_held = console_.out().full() || console_.err().full() || logs_.disk().full()};
}

bool LocalWorkers::LookForActivity(std::function<void(std::vector<LocalRank>)> done) {
  if (activity_work_.runs()) return false;
  ComputeInBackground<Activities>(
      io_, kEvidenceLimit,
      [pids = Pids(), ended = activity_work_.Begin()] {
        Activities activities = ReadActivities(pids);
        ended->store(true);
        return activities;
      },
      [this, done = std::move(done)](std::optional<Activities> activities) {
        if (!activities) return;
        std::vector<LocalRank> workers;
        for (const pid_t pid : activity_.Progressed(*std::move(activities), Now())) {
          for (const auto& [id, worker] : workers_) {
            if (worker.pid == pid) workers.push_back(worker.local_rank);
          }
        }
        done(workers);
      });
  return true;
}

}  // namespace ddprun
