// The part of LocalWorkers that finds out what the workers do.
#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "launcher/agent/background_task.h"
#include "launcher/gpu/gpu_driver.h"
#include "launcher/progress/flight_recorder.h"
#include "launcher/progress/nccl_ras.h"
#include "launcher/progress/process_sample.h"
#include "launcher/progress/worker_activity.h"
#include "launcher/stacks/stacks.h"
#include "launcher/workers/local_workers.h"

namespace ddprun {
namespace {

// A process that gdb pauses is released a little before half a second, because a busy machine may delay that.
constexpr StackLimits kStackLimits = {.tool = seconds(3), .all = seconds(3), .pause = milliseconds(450)};
// When all stacks must be there, from the beginning on: before kEvidenceLimit, because what comes later is lost.
constexpr Duration kStacksEnd = milliseconds(4300);

// For an answer of NVIDIA's driver.
constexpr Duration kGpuLimit = milliseconds(200);
// For an answer of NCCL's RAS, which waits for all processes of the job for a second, and for some of them longer.
constexpr Duration kRasLimit = milliseconds(1200), kRasSignLimit = seconds(3);
// As a sign of progress, RAS is asked four times within --hang-timeout, but not more often than this. It is asked only in rounds of so many
// nodes, because each question makes the processes of all nodes answer.
constexpr Duration kRasEvery = seconds(2);
constexpr int kRasNodes = 64;

// "all_reduce (c10d.py:9), called from <module> (train.py:12)"
std::string PlaceOf(const ThreadStack& thread) {
  const std::string innermost = thread.folded.substr(0, thread.folded.find('\n'));
  if (thread.program_frame.empty() || thread.program_frame == innermost) return innermost;
  return absl::StrCat(innermost, ", called from ", thread.program_frame);
}

// Adds the stacks of the main threads, Python ones of the first process of each worker that has any, else native ones. Returns what
// is missing. Blocks.
std::vector<std::string> AddStacks(std::vector<WorkerEvidence>& workers, TimePoint end) {
  std::vector<pid_t> all, native;
  std::map<pid_t, std::vector<pid_t>> processes;  // by worker
  for (const WorkerEvidence& worker : workers) {
    const auto root = static_cast<pid_t>(worker.pid);
    // A tool that waits for a process that is blocked in the kernel may hang, too.
    if (root <= 0 || worker.state == WorkerEvidence::State::kBlocked) continue;
    processes[root] = ProcessesOf(root);
    all.insert(all.end(), processes[root].begin(), processes[root].end());
  }
  const auto limits = [end] {
    StackLimits left = kStackLimits;
    left.all = left.tool =
        std::clamp<Duration>(end - std::chrono::steady_clock::now(), milliseconds(100), left.all);
    return left;
  };
  const Stacks python = CollectStacks(all, StackKind::kWithoutPause, limits());
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
  const Stacks others = CollectStacks(native, StackKind::kNative, limits());
  for (WorkerEvidence& worker : workers) {
    if (worker.stack.empty()) add(others, static_cast<pid_t>(worker.pid), worker);
  }
  for (const std::string& line : others.missing) {
    if (std::find(missing.begin(), missing.end(), line) == missing.end()) missing.push_back(line);
  }
  return missing;
}

// Runs `work`, which may never end, in a thread of its own. Returns nullopt if it has not ended after `limit`.
template <typename T>
std::optional<T> Within(Duration limit, std::function<T()> work) {
  std::packaged_task<T()> task(std::move(work));
  std::future<T> result = task.get_future();
  try {
    std::thread(std::move(task)).detach();
    if (result.wait_for(limit) == std::future_status::ready) return result.get();
  } catch (const std::system_error&) {  // no thread is available
  }
  return std::nullopt;
}

// Adds how busy the GPU is on which a process of the worker computes.
void AddGpuUse(const std::vector<GpuUse>& uses, std::vector<WorkerEvidence>& workers) {
  for (WorkerEvidence& worker : workers) {
    const std::vector<pid_t> tree = ProcessesOf(static_cast<pid_t>(worker.pid));
    const std::set<pid_t> pids(tree.begin(), tree.end());
    for (const GpuUse& use : uses) {
      const bool its =
          std::any_of(use.pids.begin(), use.pids.end(), [&pids](pid_t pid) { return pids.contains(pid); });
      if (its) worker.gpu_busy = std::max(use.percent, worker.gpu_busy.value_or(0));
    }
  }
}

std::vector<Rank> RanksOf(const std::vector<WorkerEvidence>& workers, Rank first_rank) {
  std::vector<Rank> ranks;
  for (const WorkerEvidence& worker : workers)
    ranks.emplace_back(first_rank.value() + worker.local_rank.value());
  return ranks;
}

// Adds the operations that NCCL's RAS knows to workers of which the SDK shows none.
void AddOperations(const std::map<pid_t, RasCounts>& counts, std::vector<WorkerEvidence>& workers) {
  for (WorkerEvidence& worker : workers) {
    const auto found = counts.find(static_cast<pid_t>(worker.pid));
    const bool uses_sdk = worker.operation && !worker.operation->kind.empty();
    if (found != counts.end() && !uses_sdk) worker.operation = OperationOf(found->second);
  }
}

}  // namespace

std::function<std::vector<GpuUse>()> LocalWorkers::GpuUseReader() {
  // A driver that hangs keeps one thread, not one for each time.
  const auto read = gpu_use_work_.runs() ? nullptr : gpu_watch_.UseReader();
  if (!read) return nullptr;
  return [read, ended = gpu_use_work_.Begin()] {
    std::vector<GpuUse> uses = read();
    ended->store(true);
    return uses;
  };
}

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
      [workers, known, pids = Pids(), first_rank = assignment_.first_rank, gpu_use = GpuUseReader(),
       asks_ras = assignment_.group_world_size <= kRasNodes] {
        const TimePoint end = std::chrono::steady_clock::now() + kStacksEnd;
        std::vector<WorkerEvidence> judged = workers;
        using Counts = std::optional<std::map<pid_t, RasCounts>>;
        std::future<Counts> counts = std::async(
            std::launch::async | std::launch::deferred,
            [&pids, asks_ras] { return asks_ras ? AskRasOfWorkers(pids, kRasLimit) : std::nullopt; });
        const bool complete = JudgeProcesses(judged);
        AddOperations(counts.get().value_or(std::map<pid_t, RasCounts>()), judged);
        if (gpu_use) {
          const auto uses = Within<std::vector<GpuUse>>(kGpuLimit, gpu_use);
          AddGpuUse(uses.value_or(std::vector<GpuUse>()), judged);
        }
        {
          const std::lock_guard lock(known->mu);
          known->judged = judged;
          if (!complete) known->missing.emplace_back("there are too many threads to look at all of them");
        }
        const std::vector<std::string> missing = AddStacks(judged, end);
        {
          const std::lock_guard lock(known->mu);
          known->judged = judged;
          known->missing.insert(known->missing.end(), missing.begin(), missing.end());
        }
        std::string recorders = AskFlightRecorders(RanksOf(judged, first_rank));
        const std::lock_guard lock(known->mu);
        if (!recorders.empty()) known->missing.push_back(std::move(recorders));
      },
      [workers, known, done = std::move(done)](bool in_time) {
        const std::lock_guard lock(known->mu);
        std::vector<std::string> missing = known->missing;
        if (!in_time) {
          missing.push_back(absl::StrCat(
              known->judged ? "not all evidence has come within " : "/proc has not answered within ",
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
  LookForOperations(done);
  if (activity_work_.runs()) return false;
  ComputeInBackground<Activities>(
      io_, kEvidenceLimit,
      [pids = Pids(), ended = activity_work_.Begin()] {
        Activities activities = ReadActivities(pids);
        ended->store(true);
        return activities;
      },
      [this, done = std::move(done)](std::optional<Activities> activities) {
        if (activities) done(WithPids(activity_.Progressed(*std::move(activities), Now())));
      });
  return true;
}

void LocalWorkers::LookForOperations(std::function<void(std::vector<LocalRank>)> done) {
  if (assignment_.group_world_size > kRasNodes || Now() < ask_ras_at_ || operations_work_.runs()) return;
  // A look may be a second late.
  ask_ras_at_ = Now() + std::max<Duration>(kRasEvery, config_.rules.hang_timeout.given() / 4 - seconds(1));
  using Counts = std::optional<std::map<pid_t, RasCounts>>;
  ComputeInBackground<Counts>(
      io_, kEvidenceLimit,
      [pids = Pids(), ended = operations_work_.Begin()] {
        Counts counts = AskRasOfWorkers(pids, kRasSignLimit);
        ended->store(true);
        return counts;
      },
      [this, done = std::move(done)](std::optional<Counts> counts) {
        std::optional<std::map<pid_t, ActivityTable::Operations>> operations;
        if (counts && *counts) {
          operations.emplace();
          for (const auto& [pid, of_worker] : **counts)
            (*operations)[pid] = {.launched = of_worker.launched, .differ = of_worker.waits.has_value()};
        }
        done(WithPids(activity_.Launched(std::move(operations))));
      });
}

std::vector<LocalRank> LocalWorkers::WithPids(const std::vector<pid_t>& pids) const {
  std::vector<LocalRank> workers;
  for (const auto& [id, worker] : workers_) {
    if (std::find(pids.begin(), pids.end(), worker.pid) != pids.end()) workers.push_back(worker.local_rank);
  }
  return workers;
}

}  // namespace ddprun
