#include "rendezvous/server/round_codec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/protocol_version.h"

namespace ddprun {
namespace {

constexpr int64_t kMaxMillis = int64_t{1000} * 3600 * 24 * 365;
constexpr int kMaxNodes = 1 << 20;
constexpr int kMaxProc = 1 << 16;
constexpr size_t kMaxTextBytes = 4096;

absl::Status InRange(absl::string_view field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", expected ", min, " to ", max));
}

absl::Status InRange(absl::string_view field, const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " has ", text.size(), " bytes, at most ", max_bytes));
}

// Text for people: it goes to every node, so there is a limit, but no text is worth a node.
std::string Clipped(const std::string& text) { return text.substr(0, kMaxTextBytes); }

}  // namespace

absl::StatusOr<RoundPolicy> DecodeRules(const proto::JobRules& rules) {
  RETURN_IF_ERROR(InRange("min_nodes", rules.min_nodes(), 1, kMaxNodes));
  RETURN_IF_ERROR(InRange("max_nodes", rules.max_nodes(), rules.min_nodes(), kMaxNodes));
  RETURN_IF_ERROR(InRange("max_restarts", rules.max_restarts(), 0, INT32_MAX));
  RETURN_IF_ERROR(InRange("first_last_call_ms", rules.first_last_call_ms(), 0, kMaxMillis));
  RETURN_IF_ERROR(InRange("last_call_ms", rules.last_call_ms(), 0, kMaxMillis));
  RETURN_IF_ERROR(InRange("join_timeout_ms", rules.join_timeout_ms(), 0, kMaxMillis));
  RETURN_IF_ERROR(InRange("lease_ms", rules.lease_ms(), 1, kMaxMillis));
  RETURN_IF_ERROR(InRange("drain_timeout_ms", rules.drain_timeout_ms(), 0, kMaxMillis));
  return RoundPolicy{.min_nodes = rules.min_nodes(),
                     .max_nodes = rules.max_nodes(),
                     .max_restarts = rules.max_restarts(),
                     .first_last_call = milliseconds(rules.first_last_call_ms()),
                     .last_call = milliseconds(rules.last_call_ms()),
                     .join_timeout = milliseconds(rules.join_timeout_ms()),
                     .lease = milliseconds(rules.lease_ms()),
                     .drain_timeout = milliseconds(rules.drain_timeout_ms())};
}

absl::StatusOr<NodeInfo> DecodeJoin(const proto::Join& join, absl::string_view seen_addr) {
  if (join.protocol() != kProtocolVersion) {
    return absl::InvalidArgumentError(absl::StrCat("the agent speaks version ", join.protocol(),
                                                   " of the protocol, the ", "coordinator ", kProtocolVersion,
                                                   ": start the same ddprun on all nodes"));
  }
  if (join.run_id().empty()) return absl::InvalidArgumentError("run_id is empty");
  RETURN_IF_ERROR(InRange("run_id", join.run_id(), 256));
  if (join.node_id().empty()) return absl::InvalidArgumentError("node_id is empty");
  RETURN_IF_ERROR(InRange("node_id", join.node_id(), 256));
  RETURN_IF_ERROR(InRange("host", join.host(), 256));
  RETURN_IF_ERROR(InRange("addr", join.addr(), 256));
  RETURN_IF_ERROR(InRange("role", join.role(), 256));
  RETURN_IF_ERROR(InRange("store_port", join.store_port(), 1, 65535));
  RETURN_IF_ERROR(InRange("nproc", join.nproc(), 1, kMaxProc));
  NodeInfo info{.id = join.node_id(),
                .host = join.host(),
                .addr = join.addr().empty() ? std::string(seen_addr) : join.addr(),
                .store_port = join.store_port(),
                .nproc = join.nproc(),
                .role = join.role()};
  if (join.has_node_rank()) {
    RETURN_IF_ERROR(InRange("node_rank", join.node_rank(), 0, kMaxNodes));
    info.requested_rank = join.node_rank();
  }
  return info;
}

absl::StatusOr<RoundEvent> DecodeEvent(const proto::AgentMessage& message, const NodeId& node) {
  switch (message.kind_case()) {
    case proto::AgentMessage::kHeartbeat:
    case proto::AgentMessage::kSnapshotTaken:
      return NodeHeard{node};
    case proto::AgentMessage::kWorkersFailed:
      return WorkersFailed{node, Round(message.workers_failed().round()),
                           Clipped(message.workers_failed().cause())};
    case proto::AgentMessage::kWorkersSucceeded:
      return WorkersSucceeded{node, Round(message.workers_succeeded().round())};
    case proto::AgentMessage::kReady:
      RETURN_IF_ERROR(InRange("store_port", message.ready().store_port(), 1, 65535));
      return NodeReady{node, Round(message.ready().round()), message.ready().store_port()};
    case proto::AgentMessage::kLeave:
      return NodeLeft{node, Clipped(message.leave().reason())};
    case proto::AgentMessage::kJoin:
      return absl::InvalidArgumentError("a second join on one stream");
    case proto::AgentMessage::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a message of no known kind");
}

std::optional<Addressed> EncodeEffect(const RoundEffect& effect) {
  Addressed out;
  if (const auto* e = std::get_if<Assign>(&effect)) {
    const Assignment& a = e->assignment;
    out.node = e->node;
    proto::Start& start = *out.message.mutable_start();
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
    start.set_reason(e->reason);
  } else if (const auto* e = std::get_if<StopWorkers>(&effect)) {
    out.node = e->node;
    out.message.mutable_stop()->set_round(e->round.value());
    out.message.mutable_stop()->set_reason(e->reason);
  } else if (const auto* e = std::get_if<TellWaiting>(&effect)) {
    out.node = e->node;
    out.message.mutable_waiting()->set_text(e->text);
  } else if (const auto* e = std::get_if<Dismiss>(&effect)) {
    out.node = e->node;
    out.message.mutable_dismiss()->set_code(e->outcome.raw_code());
    out.message.mutable_dismiss()->set_message(std::string(e->outcome.message()));
    out.last = true;
  } else if (const auto* e = std::get_if<Refuse>(&effect)) {
    out.node = e->node;
    out.message.mutable_refuse()->set_code(e->status.raw_code());
    out.message.mutable_refuse()->set_message(std::string(e->status.message()));
  } else {
    return std::nullopt;
  }
  return out;
}

}  // namespace ddprun
