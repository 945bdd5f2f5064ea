// The part of LocalWorkers that finds out what the workers do.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "launcher/agent/background_task.h"
#include "launcher/progress/process_sample.h"
#include "launcher/workers/local_workers.h"

namespace ddprun {

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
    bool complete = true;
  };
  ComputeInBackground<Judged>(
      io_, kEvidenceLimit,
      [workers] {
        Judged judged{workers};
        judged.complete = JudgeProcesses(judged.workers);
        return judged;
      },
      [workers, done = std::move(done)](std::optional<Judged> judged) {
        if (judged && judged->complete) return done(std::move(judged->workers), {});
        if (judged)
          return done(std::move(judged->workers), {"there are too many threads to look at all of them"});
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
