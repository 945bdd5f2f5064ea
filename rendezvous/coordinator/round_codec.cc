#include "rendezvous/coordinator/round_codec.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/evidence_codec.h"
#include "proto/utf8.h"
#include "proto/value_codec.h"
#include "proto/versions.h"
#include "rendezvous/core/round_text.h"

namespace ddprun {
namespace {

// Two years. The options accept at most one year, but an agent may add its own timeouts to the value.
constexpr int64_t kMaxMillis = int64_t{1000} * 3600 * 24 * 365 * 2;
constexpr int kMaxNodes = 1 << 20;
constexpr int kMaxProc = 1 << 16;
constexpr size_t kMaxNameBytes = 256;
constexpr size_t kMaxTokenBytes = 64;
constexpr size_t kMaxLineBytes = 1024;
constexpr size_t kMaxTextBytes = 4096;
constexpr int kMaxExpectedHosts = 1024;
constexpr int kMaxGone = 16;

absl::Status InRange(absl::string_view field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", expected ", min, " to ", max));
}

absl::Status InRange(absl::string_view field, const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " has ", text.size(), " bytes; at most ", max_bytes, " are allowed"));
}

absl::Status CheckName(absl::string_view field, const std::string& name) {
  RETURN_IF_ERROR(InRange(field, name, kMaxNameBytes));
  if (FindControl(name) == absl::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " has a control character, such as a line break"));
}

std::optional<Progress> DecodeProgress(const proto::Heartbeat& heartbeat) {
  if (!heartbeat.has_step() && heartbeat.phase().empty()) return std::nullopt;
  Progress progress{.round = Round(heartbeat.round()), .phase = Utf8Line(heartbeat.phase(), kMaxNameBytes)};
  if (heartbeat.has_step()) progress.step = heartbeat.step();
  return progress;
}

absl::StatusOr<LastPlace> DecodeLastPlace(const proto::LastPlace& last) {
  RETURN_IF_ERROR(InRange("round", last.round(), 0, std::numeric_limits<int32_t>::max()));
  RETURN_IF_ERROR(InRange("group_rank", last.group_rank(), 0, kMaxNodes));
  RETURN_IF_ERROR(InRange("first_rank", last.first_rank(), 0, std::numeric_limits<int32_t>::max()));
  RETURN_IF_ERROR(InRange("ran_ms", last.ran_ms(), 0, kMaxMillis));
  LastPlace place{.round = Round(static_cast<int>(last.round())),
                  .rank = GroupRank(last.group_rank()),
                  .first_rank = Rank(last.first_rank()),
                  .ran = milliseconds(last.ran_ms())};
  if (last.has_step()) {
    RETURN_IF_ERROR(InRange("step", last.step(), 0, std::numeric_limits<int64_t>::max()));
    place.step = last.step();
  }
  return place;
}

}  // namespace

absl::StatusOr<NodeInfo> DecodeNodeInfo(const proto::Join& join) {
  if (join.protocol() != kProtocolVersion) {
    return absl::InvalidArgumentError(absl::StrCat("the agent speaks version ", join.protocol(),
                                                   " of the protocol, but the coordinator speaks version ",
                                                   kProtocolVersion, ": start the same ddprun on all nodes"));
  }
  if (join.run_id().empty()) return absl::InvalidArgumentError("run_id is empty");
  RETURN_IF_ERROR(CheckName("run_id", join.run_id()));
  if (join.node_id().empty()) return absl::InvalidArgumentError("node_id is empty");
  RETURN_IF_ERROR(CheckName("node_id", join.node_id()));
  RETURN_IF_ERROR(CheckName("previous_node_id", join.previous_node_id()));
  RETURN_IF_ERROR(CheckName("host", join.host()));
  RETURN_IF_ERROR(CheckName("addr", join.addr()));
  RETURN_IF_ERROR(CheckName("role", join.role()));
  RETURN_IF_ERROR(InRange("stop_timeout_ms", join.stop_timeout_ms(), 0, kMaxMillis));
  RETURN_IF_ERROR(InRange("gone_token", join.gone_token(), kMaxTokenBytes));
  RETURN_IF_ERROR(InRange("store_port", join.store_port(), 1, 65535));
  RETURN_IF_ERROR(InRange("nproc", join.nproc(), 1, kMaxProc));
  NodeInfo info{.id = NodeId(join.node_id()),
                .host = Utf8Head(join.host(), kMaxNameBytes),
                .addr = Utf8Head(join.addr(), kMaxNameBytes),
                .store_port = join.store_port(),
                .nproc = join.nproc(),
                .role = Utf8Head(join.role(), kMaxNameBytes),
                .gone_token = join.gone_token(),
                .stop_timeout = milliseconds(join.stop_timeout_ms())};
  if (join.has_node_rank()) {
    RETURN_IF_ERROR(InRange("node_rank", join.node_rank(), 0, kMaxNodes));
    info.requested_rank = join.node_rank();
  }
  RETURN_IF_ERROR(InRange("coordinator_port", join.coordinator_port(), 0, 65535));
  info.coordinator_port = join.coordinator_port();
  if (join.has_last()) {
    ASSIGN_OR_RETURN(info.last, DecodeLastPlace(join.last()), "last");
  }
  return info;
}

std::vector<std::string> DecodeExpectedHosts(const proto::Join& join) {
  std::vector<std::string> hosts;
  if (join.expected_hosts_size() > kMaxExpectedHosts) return hosts;
  for (const std::string& host : join.expected_hosts()) hosts.push_back(Utf8Line(host, kMaxNameBytes));
  return hosts;
}

namespace {

absl::StatusOr<CoordinatorEvent> DecodeJoin(PeerId peer, const proto::Join& join) {
  ASSIGN_OR_RETURN(JobRules rules, DecodeRules(join.rules()), "rules of the job");
  ASSIGN_OR_RETURN(NodeInfo info, DecodeNodeInfo(join), "join");
  RETURN_IF_ERROR(InRange("number of gone nodes", join.gone_size(), 0, kMaxGone));
  std::vector<std::pair<NodeId, std::string>> gone;
  for (const proto::GoneNode& node : join.gone()) {
    RETURN_IF_ERROR(CheckName("node_id of a gone node", node.node_id()));
    RETURN_IF_ERROR(InRange("gone_token of a gone node", node.gone_token(), kMaxTokenBytes));
    gone.emplace_back(NodeId(node.node_id()), node.gone_token());
  }
  return PeerJoined{.peer = peer,
                    .run_id = join.run_id(),
                    .rules = rules,
                    .info = std::move(info),
                    .expected_hosts = DecodeExpectedHosts(join),
                    .previous_node = NodeId(join.previous_node_id()),
                    .previous_token = join.previous_gone_token(),
                    .gone = std::move(gone)};
}

absl::StatusOr<NodeMessage> DecodeNodeMessage(const proto::AgentMessage& message, TimePoint now) {
  switch (message.kind_case()) {
    case proto::AgentMessage::kHeartbeat:
      return NodeHeard{.node = {}, .progress = DecodeProgress(message.heartbeat())};
    case proto::AgentMessage::kSnapshotTaken:
      return SnapshotTaken{{}, Round(message.snapshot_taken().round()), message.snapshot_taken().step()};
    case proto::AgentMessage::kWorkersFailed: {
      const proto::WorkersFailed& failed = message.workers_failed();
      return WorkersFailed{{}, Round(failed.round()), DecodeFailure(failed.failure(), now)};
    }
    case proto::AgentMessage::kWorkersSucceeded:
      return WorkersSucceeded{
          {}, Round(message.workers_succeeded().round()), message.workers_succeeded().finished()};
    case proto::AgentMessage::kPreempted: {
      const proto::Preempted& preempted = message.preempted();
      RETURN_IF_ERROR(InRange("left_ms", preempted.left_ms(), 0, kMaxMillis));
      RETURN_IF_ERROR(InRange("back_in_ms", preempted.back_in_ms(), 0, kMaxMillis));
      NoticeGiven notice{.node = {},
                         .left = milliseconds(preempted.left_ms()),
                         .reason = Utf8Line(preempted.reason(), kMaxLineBytes)};
      if (preempted.has_back_in_ms()) notice.back_in = milliseconds(preempted.back_in_ms());
      return notice;
    }
    case proto::AgentMessage::kStandstill: {
      RETURN_IF_ERROR(InRange("idle_ms", message.standstill().idle_ms(), 0, kMaxMillis));
      return StandstillChanged{
          {}, Round(message.standstill().round()), DecodeStandstill(message.standstill())};
    }
    case proto::AgentMessage::kEvidence: {
      const proto::Evidence& evidence = message.evidence();
      EvidenceCame came{.node = {}, .round = Round(evidence.round()), .request = evidence.request()};
      came.workers = DecodeWorkers(evidence);
      came.missing = DecodeMissing(evidence);
      return came;
    }
    case proto::AgentMessage::kStepTimes:
      return StepsTimed{{}, Round(message.step_times().round()), DecodeStepTimes(message.step_times())};
    case proto::AgentMessage::kReady:
      RETURN_IF_ERROR(InRange("store_port", message.ready().store_port(), 1, 65535));
      return NodeReady{
          .node = {},
          .round = Round(message.ready().round()),
          .store_port = message.ready().store_port(),
          .failures = DecodeFailures(message.ready().failures(), now),
          .step = message.ready().has_step() ? std::optional(message.ready().step()) : std::nullopt};
    case proto::AgentMessage::kLeave: {
      std::string reason = Utf8Line(message.leave().reason(), kMaxLineBytes);
      if (message.leave().workers_gone()) return NodeLeft{{}, std::move(reason)};
      return NodeLeaving{{}, std::move(reason)};
    }
    case proto::AgentMessage::kJoin:
    case proto::AgentMessage::kStacks:  // concerns no round; see Coordinator::Receive
    case proto::AgentMessage::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a message of unknown kind");
}

}  // namespace

CoordinatorEvent DecodeAgentMessage(PeerId peer, const proto::AgentMessage& message, TimePoint now) {
  if (message.has_join()) {
    absl::StatusOr<CoordinatorEvent> joined = DecodeJoin(peer, message.join());
    return joined.ok() ? *std::move(joined) : PeerMisspoke{peer, joined.status()};
  }
  absl::StatusOr<NodeMessage> said = DecodeNodeMessage(message, now);
  if (!said.ok()) return PeerMisspoke{peer, said.status()};
  return PeerSaid{peer, *std::move(said)};
}

proto::CoordinatorMessage EncodeOrder(const RoundEffect& order, TimePoint now) {
  proto::CoordinatorMessage out;
  if (const auto* e = std::get_if<Assign>(&order)) {
    const Assignment& a = e->assignment;
    proto::Start& start = *out.mutable_start();
    start.set_round(a.round.value());
    start.set_group_rank(static_cast<int>(a.group_rank.value()));
    start.set_group_world_size(a.group_world_size);
    start.set_first_rank(static_cast<int>(a.first_rank.value()));
    start.set_world_size(a.world_size);
    start.set_first_role_rank(a.first_role_rank);
    start.set_role_world_size(a.role_world_size);
    start.set_restart_count(a.restart_count);
    start.set_master_addr(a.master_addr);
    start.set_master_port(a.master_port);
    start.set_reason(ToText(e->reason));
  } else if (const auto* e = std::get_if<StopWorkers>(&order)) {
    out.mutable_stop()->set_round(e->round.value());
    out.mutable_stop()->set_reason(ToText(e->reason));
    out.mutable_stop()->set_no_round_follows(e->no_round_follows);
    for (const LocalRank rank : e->hung)
      out.mutable_stop()->add_hung_local_ranks(static_cast<int>(rank.value()));
  } else if (const auto* e = std::get_if<TakeSnapshot>(&order)) {
    out.mutable_take_snapshot()->set_round(e->round.value());
    out.mutable_take_snapshot()->set_reason(ToText(e->reason));
    if (e->stop_within) out.mutable_take_snapshot()->set_stop_within_ms(ToMillis(*e->stop_within));
    if (e->left) out.mutable_take_snapshot()->set_left_ms(ToMillis(*e->left));
  } else if (const auto* e = std::get_if<CollectEvidence>(&order)) {
    out.mutable_collect_evidence()->set_round(e->round.value());
    out.mutable_collect_evidence()->set_request(e->request);
    out.mutable_collect_evidence()->set_max_bytes(static_cast<int64_t>(e->max_bytes));
  } else if (const auto* e = std::get_if<TellReport>(&order)) {
    *out.mutable_report() = EncodeReport(*e->report, now);
  } else if (const auto* e = std::get_if<TellWaiting>(&order)) {
    out.mutable_waiting()->set_text(ToText(*e->what));
    const auto* gathering = std::get_if<WaitsForNodes>(e->what.get());
    if (gathering != nullptr && gathering->last_call_end) {
      const Duration left = *gathering->last_call_end - gathering->now;
      out.mutable_waiting()->set_start_in_ms(std::max<int64_t>(ToMillis(left), 0));
    }
  } else if (const auto* e = std::get_if<Dismiss>(&order)) {
    *out.mutable_dismiss() = EncodeDismiss(e->reason, ToText(e->why));
  } else if (const auto* e = std::get_if<Refuse>(&order)) {
    out.mutable_refuse()->set_code(e->status.raw_code());
    out.mutable_refuse()->set_message(std::string(e->status.message()));
  }
  return out;
}

proto::Dismiss EncodeDismiss(Dismissal reason, absl::string_view message) {
  proto::Dismiss out;
  out.set_message(Utf8Head(message, kMaxTextBytes));
  out.set_reason(EncodeDismissal(reason));
  return out;
}

}  // namespace ddprun
