#include "launcher/observers/job_metrics.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ddprun {

JobMetrics::JobMetrics(const LaunchConfig& config, TimePoint start, std::function<double()> wall_clock,
                       std::function<void(const std::string&)> write)
    : role_(config.role),
      num_workers_(config.num_local_workers),
      max_restarts_(config.rules.max_restarts),
      start_(start),
      wall_clock_(std::move(wall_clock)),
      write_(std::move(write)) {}

void JobMetrics::OnWaiting(TimePoint now) {
  if (stopping_since_) Stopped(/*ok=*/true, now);  // all workers survive
  waiting_since_ = now;
}

void JobMetrics::OnRound(const Assignment& assignment, TimePoint now) {
  ran_ = true;
  restart_count_ = assignment.restart_count;
  round_start_ = now;
  num_started_ = 0;
  failed_ = stopped_ = false;
  PutCall("SimpleElasticAgent._assign_worker_ranks", true, Duration::zero());
  PutCall("SimpleElasticAgent._rendezvous", true, now - waiting_since_.value_or(now));
}

void JobMetrics::OnWorkerStarted(LocalRank, pid_t, TimePoint now) {
  if (++num_started_ < num_workers_ || failed_) return;
  PutCall("LocalElasticAgent._start_workers", true, now - round_start_);
  PutCall("SimpleElasticAgent._initialize_workers", true, now - waiting_since_.value_or(now));
  if (restarting_since_) PutCall("SimpleElasticAgent._restart_workers", true, now - *restarting_since_);
  restarting_since_.reset();
  PutState("healthy");
}

void JobMetrics::OnWorkerKept(LocalRank local_rank, pid_t pid, TimePoint now) {
  OnWorkerStarted(local_rank, pid, now);
}

void JobMetrics::OnFailure(TimePoint now) {
  failed_ = true;
  if (num_started_ < num_workers_) PutCall("LocalElasticAgent._start_workers", false, now - round_start_);
  PutState("failed");
}

void JobMetrics::OnStopping(TimePoint now) { stopping_since_ = now; }

void JobMetrics::OnWorkersGone(const std::vector<std::string>& unkillable, TimePoint now) {
  if (stopped_) return;  // a worker that was to survive has exited
  if (!failed_ && !stopping_since_) return PutState("succeeded");
  Stopped(unkillable.empty(), now);
}

void JobMetrics::Stopped(bool ok, TimePoint now) {
  const TimePoint since = std::exchange(stopping_since_, {}).value_or(now);
  PutCall("LocalElasticAgent._stop_workers", ok, now - since);
  restarting_since_ = since;
  stopped_ = true;
}

void JobMetrics::OnEnd(const AgentEnd& end, TimePoint now) {
  const bool failed = end.reason == EndReason::kJobFailed;
  const bool reached_end = (failed || end.reason == EndReason::kSucceeded) && ran_;
  if (reached_end) {
    const bool restarted = restart_count_ > 0;
    const int all = max_restarts_ + 1;
    PutOfWorkers("flakiness", failed ? 100 : 100 * (all - (remaining_restarts() + 1)) / all);
    PutOfWorkers("run_total", 1);
    PutOfWorkers("run_success_with_retries", !failed && restarted);
    PutOfWorkers("run_success_no_retries", !failed && !restarted);
    PutOfWorkers("run_failed_with_retries", failed && restarted);
    PutOfWorkers("run_failed_no_retries", failed && !restarted);
  }
  PutCall("SimpleElasticAgent.run", reached_end || end.reason == EndReason::kDrained, now - start_);
}

void JobMetrics::Put(absl::string_view name, int64_t value) {
  write_(absl::StrFormat("[%.6f][torchelastic]: %s=%d\n", wall_clock_(), name, value));
}

void JobMetrics::PutCall(absl::string_view function, bool ok, Duration took) {
  Put(absl::StrCat(function, ok ? ".success" : ".failure"), 1);
  Put(absl::StrCat(function, ".duration.ms"), std::chrono::duration_cast<milliseconds>(took).count());
}

void JobMetrics::PutOfWorkers(absl::string_view name, int64_t value) {
  Put(absl::StrCat("workers.", role_, ".", name), value);
}

void JobMetrics::PutState(absl::string_view state) {
  PutOfWorkers("remaining_restarts", remaining_restarts());
  PutOfWorkers(state, 1);
}

}  // namespace ddprun
