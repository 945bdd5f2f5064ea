// The part of LocalWorkers that shows the stacks of workers to users.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "boost/asio/post.hpp"
#include "launcher/agent/background_task.h"
#include "launcher/progress/worker_activity.h"
#include "launcher/stacks/stacks.h"
#include "launcher/workers/local_workers.h"
#include "proto/utf8.h"

namespace ddprun {
namespace {

struct WorkerTree {
  LocalRank local_rank;
  std::vector<pid_t> processes;  // that of the worker, and those below it
};

constexpr size_t kMaxNameBytes = 100;
constexpr size_t kMaxMissing = 16;  // lines
constexpr size_t kOverhead = 64;    // bytes of a worker or a thread in the message, besides its texts

// The stacks of the workers. What exceeds `max_bytes` is left out, the last threads of each worker first.
proto::Stacks Encode(const std::vector<WorkerTree>& workers, const Stacks& stacks, size_t max_bytes) {
  proto::Stacks message;
  for (size_t i = 0; i < std::min(stacks.missing.size(), kMaxMissing); ++i)
    message.add_missing(Utf8Line(stacks.missing[i], kMaxNameBytes * 5));
  size_t left = max_bytes - std::min(max_bytes, message.ByteSizeLong());
  bool cut = false;
  for (size_t i = 0; i < workers.size(); ++i) {
    size_t share = left / (workers.size() - i);
    proto::WorkerStacks worker;
    worker.set_local_rank(static_cast<int>(workers[i].local_rank.value()));
    worker.set_pid(workers[i].processes[0]);
    bool has_main = false;
    for (const pid_t pid : workers[i].processes) {
      if (const auto paused = stacks.paused.find(pid); paused != stacks.paused.end())
        worker.set_paused_ms(std::max<int64_t>(worker.paused_ms(), ToMillis(paused->second)));
      const auto found = stacks.of.find(pid);
      if (found == stacks.of.end()) continue;
      // The first process with stacks is the program itself, which a shell may have started.
      const bool program = !std::exchange(has_main, true);
      for (const ThreadStack& thread : found->second) {
        const std::string name =
            Utf8Line(program ? thread.name : absl::StrCat(thread.name, " of a child process"), kMaxNameBytes);
        const size_t size = name.size() + thread.folded.size() + kOverhead;
        if (size + kOverhead > share) {
          cut = true;
          break;
        }
        share -= size;
        left -= size;
        proto::WorkerStacks::Thread& out = *worker.add_threads();
        out.set_name(name);
        out.set_main(program && thread.main);
        out.set_stack(Utf8Head(thread.folded, thread.folded.size()));
      }
    }
    *message.add_workers() = std::move(worker);
  }
  if (cut) message.add_missing("the stacks of all threads are too long: ask for one rank");
  return message;
}

// Blocks for less than `limit`.
proto::Stacks Collect(std::vector<WorkerTree> workers, bool native, size_t max_bytes, Duration limit) {
  std::vector<pid_t> all;
  for (WorkerTree& worker : workers) {
    worker.processes = ProcessesOf(worker.processes[0]);
    all.insert(all.end(), worker.processes.begin(), worker.processes.end());
  }
  const Duration tools = limit - seconds(1);
  Stacks stacks = CollectStacks(all, native ? StackKind::kNative : StackKind::kWithoutPause,
                                {.tool = tools, .all = tools, .pause = milliseconds(450)});
  if (!native && stacks.of.empty() && stacks.missing.empty())
    stacks.missing.emplace_back("no worker runs Python; --native shows the stacks of other programs");
  return Encode(workers, stacks, max_bytes);
}

}  // namespace

void LocalWorkers::CollectStacks(const proto::CollectStacks& order, std::function<void(proto::Stacks)> done) {
  std::vector<WorkerTree> workers;
  for (const auto& [id, worker] : workers_) {
    const auto& wanted = order.local_ranks();
    if (worker.pid == 0) continue;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), worker.local_rank.value()) == wanted.end())
      continue;
    workers.push_back({worker.local_rank, {worker.pid}});
  }
  const auto answer = [this, done = std::move(done)](const proto::Stacks& stacks) {
    boost::asio::post(io_, [done, stacks] { done(stacks); });
  };
  proto::Stacks nothing;
  if (workers.empty()) {
    nothing.add_missing("no such worker runs");
    return answer(nothing);
  }
  if (stacks_work_.runs()) {
    nothing.add_missing("the stacks for another request are still being collected: ask again");
    return answer(nothing);
  }
  const bool native = order.native();
  const size_t max_bytes = static_cast<size_t>(std::max<int64_t>(order.max_bytes(), 0));
  const Duration limit = native ? kNativeStacksLimit : kStacksLimit;
  ComputeInBackground<proto::Stacks>(
      io_, limit,
      [workers, native, max_bytes, limit, ended = stacks_work_.Begin()] {
        proto::Stacks stacks = Collect(workers, native, max_bytes, limit);
        ended->store(true);
        return stacks;
      },
      [limit, answer](std::optional<proto::Stacks> stacks) {
        if (stacks) return answer(*stacks);
        proto::Stacks late;
        late.add_missing(absl::StrCat("/proc has not answered within ", InSeconds(limit)));
        answer(late);
      });
}

}  // namespace ddprun
