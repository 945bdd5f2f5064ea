#include "tests/sim/world/message_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dismissal.h"
#include "proto/value_codec.h"

namespace ddprun::sim {
namespace {

std::string Text(const proto::Failure& f) {
  std::string text = absl::StrCat("rank ", f.rank(), ": ");
  switch (f.exit_case()) {
    case proto::Failure::kSignaled:
      absl::StrAppend(&text, "signal ", f.signaled().signo());
      break;
    case proto::Failure::kNeverStarted:
      absl::StrAppend(&text, "never started: ", f.never_started().why());
      break;
    case proto::Failure::kHung:
      absl::StrAppend(&text, "hung: ", f.hung().finding());
      break;
    case proto::Failure::kStuck:
      absl::StrAppend(&text, "stuck: ", f.stuck());
      break;
    default:
      absl::StrAppend(&text, "exit code ", f.exit_code());
  }
  if (f.has_step()) absl::StrAppend(&text, " after step ", f.step());
  if (f.origin() == proto::FAILURE_ORIGIN_FOLLOWS_ANOTHER)
    absl::StrAppend(&text, ", follows from another failure");
  return text;
}

template <typename Failures>
std::string Text(const Failures& failures) {
  return absl::StrJoin(failures, "; ",
                       [](std::string* out, const proto::Failure& f) { absl::StrAppend(out, Text(f)); });
}

std::string Text(const proto::JobReport& report) {
  std::string text = absl::StrCat("Report(round ", report.round());
  for (const proto::JobReport::Group& group : report.groups()) {
    absl::StrAppend(&text, "; ", Text(group.first()));
    if (group.count() > 1) absl::StrAppend(&text, " and ", group.count() - 1, " like it");
  }
  for (const std::string& lost : report.lost_nodes()) absl::StrAppend(&text, "; lost: ", lost);
  return absl::StrCat(text, "; ", report.outcome(), ")");
}

}  // namespace

std::string MessageText(const proto::AgentMessage& message) {
  switch (message.kind_case()) {
    case proto::AgentMessage::kJoin: {
      const proto::Join& join = message.join();
      const std::string was =
          join.previous_node_id().empty() ? "" : absl::StrCat(", previously ", join.previous_node_id());
      return absl::StrCat("Join(nproc ", join.nproc(), ", store port ", join.store_port(), was, ")");
    }
    case proto::AgentMessage::kWorkersFailed:
      return absl::StrCat("WorkersFailed(round ", message.workers_failed().round(), ", ",
                          Text(message.workers_failed().failure()), ")");
    case proto::AgentMessage::kWorkersSucceeded:
      return absl::StrCat("WorkersSucceeded(round ", message.workers_succeeded().round(), ")");
    case proto::AgentMessage::kReady: {
      const proto::Ready& ready = message.ready();
      const std::string failures = ready.failures().empty() ? "" : absl::StrCat("; ", Text(ready.failures()));
      return absl::StrCat("Ready(round ", ready.round(), ", store port ", ready.store_port(), failures, ")");
    }
    case proto::AgentMessage::kLeave:
      return absl::StrCat("Leave(", message.leave().workers_gone() ? "no workers left" : "stops its workers",
                          ": ", message.leave().reason(), ")");
    case proto::AgentMessage::kSnapshotTaken:
      return absl::StrCat("SnapshotTaken(round ", message.snapshot_taken().round(), ", step ",
                          message.snapshot_taken().step(), ")");
    case proto::AgentMessage::kPreempted:
      return absl::StrCat("Preempted(in ", message.preempted().left_ms(),
                          " ms: ", message.preempted().reason(), ")");
    case proto::AgentMessage::kStandstill:
      return absl::StrCat("Standstill(round ", message.standstill().round(), ", level ",
                          message.standstill().level(), message.standstill().reports() ? ", by reports" : "",
                          message.standstill().ended() ? ", all have ended" : "", ")");
    case proto::AgentMessage::kEvidence:
      return absl::StrCat("Evidence(round ", message.evidence().round(), ", request ",
                          message.evidence().request(), ")");
    case proto::AgentMessage::kStacks:
      return absl::StrCat("Stacks(request ", message.stacks().request(), ")");
    case proto::AgentMessage::kStepTimes: {
      std::string ranks;
      for (const proto::StepTimes::Worker& worker : message.step_times().workers()) {
        absl::StrAppend(&ranks, ", ", worker.local_rank(), ": ", worker.step_us(), " us, waits ",
                        worker.communication_us());
      }
      return absl::StrCat("StepTimes(round ", message.step_times().round(), ranks, ")");
    }
    case proto::AgentMessage::kHeartbeat:
    case proto::AgentMessage::KIND_NOT_SET:
      break;
  }
  return "";
}

std::string MessageText(const proto::CoordinatorMessage& message) {
  switch (message.kind_case()) {
    case proto::CoordinatorMessage::kWelcome: {
      const int64_t ms = message.welcome().heartbeat_ms();
      return ms > 0 ? absl::StrCat("Welcome(a heartbeat every ", ms, " ms)") : "Welcome(no heartbeat needed)";
    }
    case proto::CoordinatorMessage::kWaiting:
      return absl::StrCat("Waiting(", message.waiting().text(), ")");
    case proto::CoordinatorMessage::kStart: {
      const proto::Start& start = message.start();
      return absl::StrCat("Start(round ", start.round(), ", group rank ", start.group_rank(), " of ",
                          start.group_world_size(), ", first rank ", start.first_rank(), " of ",
                          start.world_size(), ", store at ", start.master_addr(), ":", start.master_port(),
                          ")");
    }
    case proto::CoordinatorMessage::kStop:
      return absl::StrCat("Stop(round ", message.stop().round(), ": ", message.stop().reason(),
                          message.stop().no_round_follows() ? "; no round follows" : "",
                          message.stop().hung_local_ranks().empty()
                              ? ""
                              : absl::StrCat("; local ranks ",
                                             absl::StrJoin(message.stop().hung_local_ranks(), ", "), " hang"),
                          ")");
    case proto::CoordinatorMessage::kDismiss: {
      const std::string why =
          message.dismiss().message().empty() ? "" : absl::StrCat(": ", message.dismiss().message());
      return absl::StrCat("Dismiss(", ddprun::ToString(DecodeDismissal(message.dismiss().reason())), why,
                          ")");
    }
    case proto::CoordinatorMessage::kRefuse:
      return absl::StrCat("Refuse(", message.refuse().message(), ")");
    case proto::CoordinatorMessage::kCollectEvidence:
      return absl::StrCat("CollectEvidence(round ", message.collect_evidence().round(), ", request ",
                          message.collect_evidence().request(), ")");
    case proto::CoordinatorMessage::kCollectStacks:
      return absl::StrCat("CollectStacks(request ", message.collect_stacks().request(), ")");
    case proto::CoordinatorMessage::kTakeSnapshot:
      return absl::StrCat("TakeSnapshot(round ", message.take_snapshot().round(), ": ",
                          message.take_snapshot().reason(),
                          message.take_snapshot().has_stop_within_ms() ? "; then stop" : "", ")");
    case proto::CoordinatorMessage::kReport:
      return Text(message.report());
    case proto::CoordinatorMessage::kHeard:
    case proto::CoordinatorMessage::KIND_NOT_SET:
      break;
  }
  return "";
}

}  // namespace ddprun::sim
