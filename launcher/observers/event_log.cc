#include "launcher/observers/event_log.h"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_info.h"
#include "launcher/report/python_json.h"

namespace ddprun {
namespace {

std::string FileName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Returns torchrun's raw_error: the contents of the error file, or a placeholder if there is none.
std::string RawError(const FailureRecord& record) {
  if (record.worker_error) {
    boost::json::error_code error;
    const boost::json::value file = boost::json::parse(record.worker_error->json, error);
    if (!error) return PythonDumps(file);
  }
  return std::holds_alternative<Signaled>(record.failure.exit)
             ? R"({"message": "<NONE>"})"
             : R"({"message": "<NONE>", "errorTraits": {"category": "system_terminated_error", )"
               R"("retryability": "False"}})";
}

// Also true for a drained node, although the job may continue on other nodes.
bool ReachedEndOfJob(EndReason reason) {
  return reason == EndReason::kSucceeded || reason == EndReason::kJobFailed || reason == EndReason::kDrained;
}

}  // namespace

JobEvents::JobEvents(const LaunchConfig& config, TimePoint start,
                     std::function<void(const std::string&)> write)
    : write_(std::move(write)),
      num_workers_(config.num_local_workers),
      start_(start),
      context_{.run_id = config.run_id,
               .role = config.role,
               .hostname = {},
               .rdzv_backend = NameOf(config.backend),
               .entry_point = config.program.argv.empty() ? "" : FileName(config.program.argv[0])} {}

void JobEvents::OnWaiting(TimePoint now) { waiting_since_ = now; }

void JobEvents::EndRendezvous(TimePoint now) {
  if (!waiting_since_) return;
  const std::chrono::duration<double, std::milli> waited = now - *waiting_since_;
  waiting_since_.reset();
  Write({.state = "RENDEZVOUS", .duration_ms = waited.count()});
}

void JobEvents::OnRound(const Assignment& assignment, TimePoint now) {
  // As in torchrun, these two events contain the restart count of the new round, but the group rank and the
  // group world size of the previous round.
  context_.agent_restarts = assignment.restart_count;
  EndRendezvous(now);
  Write({.state = "ASSIGN_WORKER_RANKS", .duration_ms = 0.0});
  assignment_ = assignment;
  context_.group_rank = static_cast<int>(assignment.group_rank.value());
  context_.group_world_size = assignment.group_world_size;
  pids_.assign(num_workers_, 0);
}

void JobEvents::OnWorkerStarted(LocalRank local_rank, pid_t pid, TimePoint) {
  if (!assignment_) return;
  pids_[local_rank.value()] = pid;
  Write({.state = "START", .worker = WorkerOf(local_rank)});
}

void JobEvents::OnWorkerKept(LocalRank local_rank, pid_t pid, TimePoint) {
  if (assignment_) pids_[local_rank.value()] = pid;
}

EventWorker JobEvents::WorkerOf(LocalRank local_rank) const {
  const auto i = static_cast<int>(local_rank.value());
  return {.rank = Rank(assignment_->first_rank.value() + i),
          .local_rank = local_rank,
          .role_rank = assignment_->first_role_rank + i,
          .role_world_size = assignment_->role_world_size,
          .pid = pids_[i]};
}

void JobEvents::OnWatchdog(const WatchdogNote& note, TimePoint) {
  std::string metadata = absl::StrCat("{\"watchdog_event\": ", PythonString(note.what));
  if (note.pid != 0) {
    // torchrun writes these numbers as strings.
    absl::StrAppend(&metadata, ", \"worker_pid\": \"", note.pid,
                    "\", \"scope_id\": ", PythonString(note.scope), ", \"expiration_time\": \"",
                    PythonFloat(note.expires), "\", \"signal\": \"", note.signo, "\"");
  }
  metadata += "}";
  WriteWithHost([name = std::string(note.what), metadata](const EventContext& context) {
    return FormatWatchdogEvent(context, name, metadata);
  });
}

void JobEvents::OnEnd(const AgentEnd& end, TimePoint now) {
  context_.total_run_time = std::chrono::duration_cast<seconds>(now - start_).count();
  if (ReachedEndOfJob(end.reason) && assignment_) {
    WriteWorkerEnds(end);
    return Write({.state = "SUCCEEDED"});
  }
  EndRendezvous(now);
  Write({.state = "FAILED", .raw_error = end.why});
}

void JobEvents::WriteWorkerEnds(const AgentEnd& end) {
  for (int i = 0; i < num_workers_; ++i) {
    JobEvent event = {.state = end.reason == EndReason::kSucceeded ? "SUCCEEDED" : "TERMINATED",
                      .worker = WorkerOf(LocalRank(i))};
    const auto record = std::find_if(end.failures.begin(), end.failures.end(), [i](const FailureRecord& r) {
      return r.failure.local_rank == LocalRank(i) && !r.failure.parked;
    });
    if (record != end.failures.end() && end.reason != EndReason::kSucceeded) {
      event.state = "FAILED";
      event.worker->exit_code = TorchExitCode(record->failure.exit);
      event.worker->failed_pid = static_cast<pid_t>(record->failure.pid);
      event.raw_error = RawError(*record);
    }
    Write(std::move(event));
  }
}

void JobEvents::OnHostName(const std::string& name) {
  context_.hostname = name;
  knows_host_ = true;
  for (const auto& write : std::exchange(held_, {})) write();
}

void JobEvents::Write(JobEvent event) {
  WriteWithHost(
      [event = std::move(event)](const EventContext& context) { return FormatEvent(context, event); });
}

void JobEvents::WriteWithHost(std::function<std::string(const EventContext&)> format) {
  if (knows_host_) return write_(format(context_) + "\n");
  held_.push_back([this, format = std::move(format), context = context_]() mutable {
    context.hostname = context_.hostname;
    write_(format(context) + "\n");
  });
}

}  // namespace ddprun
