#include "base/worker_message.h"

#include <cstring>
#include <functional>
#include <utility>

namespace ddprun {
namespace {

constexpr uint32_t kMagic = 0x57504444;  // "DDPW"
constexpr size_t kHeaderBytes = 8;

enum Kind : uint8_t { kReport = 1, kRequest = 2, kVersionNotice = 3, kSurvival = 4, kOffer = 5, kPage = 6 };

// Tags of all kinds of messages. A tag is never reused.
enum Tag : uint16_t {
  kRound = 1,
  kRank = 2,
  kLocalRank = 3,
  kPid = 4,
  kStep = 5,
  kPhase = 6,
  kMessage = 7,
  kSnapshotStep = 8,
  kTakeSnapshot = 9,
  kMaySurvive = 10,
  kRoundOver = 11,
  kNoRoundFollows = 12,
  kState = 13,
  kGroupRank = 14,
  kWorldSize = 15,
  kGroupWorldSize = 16,
  kRoleRank = 17,
  kRoleWorldSize = 18,
  kRestartCount = 19,
  kMasterAddr = 20,
  kMasterPort = 21,
  kNodeAddr = 22,
  kLeaseMs = 23,
  kStopByNs = 24,
  kStopReason = 25,
};

template <typename T>
void Append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T Load(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string Header(Kind kind) {
  std::string out;
  Append(out, kMagic);
  Append(out, static_cast<uint8_t>(kWorkerMessageVersion));
  Append(out, static_cast<uint8_t>(kind));
  Append(out, uint16_t{0});
  return out;
}

void AppendText(std::string& out, Tag tag, std::string_view text) {
  Append(out, static_cast<uint16_t>(tag));
  Append(out, static_cast<uint16_t>(text.size()));
  out.append(text);
}

void AppendNumber(std::string& out, Tag tag, int64_t value) {
  AppendText(out, tag, {reinterpret_cast<const char*>(&value), sizeof value});
}

// Truncates `text` without splitting a UTF-8 character.
std::string_view Cut(std::string_view text) {
  if (text.size() <= kMaxReportTextBytes) return text;
  size_t n = kMaxReportTextBytes;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  return text.substr(0, n);
}

bool HasHeader(std::string_view packet) {
  return packet.size() >= kHeaderBytes && packet.size() <= kMaxWorkerMessageBytes &&
         Load<uint32_t>(packet) == kMagic;
}

// Calls `field` for each field of a message of this kind and version. Returns false if the packet is no such
// message, if a field is cut off, or if `field` returns false.
bool ForEachField(std::string_view packet, Kind kind,
                  const std::function<bool(uint16_t tag, std::string_view value)>& field) {
  if (!HasHeader(packet) || Load<uint8_t>(packet.substr(4)) != kWorkerMessageVersion ||
      Load<uint8_t>(packet.substr(5)) != kind) {
    return false;
  }
  packet.remove_prefix(kHeaderBytes);
  while (!packet.empty()) {
    if (packet.size() < 4) return false;
    const auto tag = Load<uint16_t>(packet);
    const auto length = Load<uint16_t>(packet.substr(2));
    packet.remove_prefix(4);
    if (packet.size() < length || !field(tag, packet.substr(0, length))) return false;
    packet.remove_prefix(length);
  }
  return true;
}

// Stores the number that `value` holds. Returns false if it is no number between `min` and `max`.
bool Number(std::string_view value, int64_t min, int64_t max, int64_t* out) {
  if (value.size() != sizeof *out) return false;
  *out = Load<int64_t>(value);
  return *out >= min && *out <= max;
}

// The same for a number that is stored as a T, such as a Rank or an int.
template <typename T>
bool NumberAs(std::string_view value, int64_t min, int64_t max, T* out) {
  int64_t n = 0;
  if (!Number(value, min, max, &n)) return false;
  *out = T(n);
  return true;
}

}  // namespace

std::string_view NameOf(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kUnspecified:
      break;
    case WorkerPhase::kStarting:
      return "starting";
    case WorkerPhase::kLoading:
      return "loading";
    case WorkerPhase::kTraining:
      return "training";
    case WorkerPhase::kSnapshotting:
      return "snapshotting";
    case WorkerPhase::kFinishing:
      return "finishing";
  }
  return "";
}

std::string Encode(const WorkerReport& report) {
  std::string out = Header(kReport);
  AppendNumber(out, kRound, report.round.value());
  AppendNumber(out, kRank, report.rank.value());
  AppendNumber(out, kLocalRank, report.local_rank.value());
  AppendNumber(out, kPid, report.pid);
  AppendNumber(out, kStep, report.step);
  AppendNumber(out, kPhase, static_cast<int64_t>(report.phase));
  if (!report.message.empty()) AppendText(out, kMessage, Cut(report.message));
  if (report.snapshot_step) AppendNumber(out, kSnapshotStep, *report.snapshot_step);
  return out;
}

std::string Encode(const AgentRequest& request) {
  std::string out = Header(kRequest);
  AppendNumber(out, kRound, request.round.value());
  AppendNumber(out, kTakeSnapshot, request.take_snapshot ? 1 : 0);
  if (request.may_survive) AppendNumber(out, kMaySurvive, 1);
  if (request.round_over) AppendNumber(out, kRoundOver, 1);
  if (request.no_round_follows) AppendNumber(out, kNoRoundFollows, 1);
  if (request.stop) {
    AppendNumber(out, kStopByNs, request.stop->by.time_since_epoch().count());
    AppendText(out, kStopReason, Cut(request.stop->reason));
  }
  return out;
}

std::string Encode(const WorkerSurvival& survival) {
  std::string out = Header(kSurvival);
  AppendNumber(out, kRound, survival.round.value());
  AppendNumber(out, kRank, survival.rank.value());
  AppendNumber(out, kLocalRank, survival.local_rank.value());
  AppendNumber(out, kPid, survival.pid);
  AppendNumber(out, kState, static_cast<int64_t>(survival.state));
  if (!survival.message.empty()) AppendText(out, kMessage, Cut(survival.message));
  return out;
}

std::string Encode(const WorkerPage& page) {
  std::string out = Header(kPage);
  AppendNumber(out, kLocalRank, page.local_rank.value());
  return out;
}

std::string Encode(const RoundOffer& offer) {
  std::string out = Header(kOffer);
  AppendNumber(out, kRound, offer.round.value());
  AppendNumber(out, kRank, offer.rank.value());
  AppendNumber(out, kGroupRank, offer.group_rank.value());
  AppendNumber(out, kWorldSize, offer.world_size);
  AppendNumber(out, kGroupWorldSize, offer.group_world_size);
  AppendNumber(out, kRoleRank, offer.role_rank);
  AppendNumber(out, kRoleWorldSize, offer.role_world_size);
  AppendNumber(out, kRestartCount, offer.restart_count);
  AppendText(out, kMasterAddr, offer.master_addr);
  AppendNumber(out, kMasterPort, offer.master_port);
  AppendText(out, kNodeAddr, offer.node_addr);
  AppendNumber(out, kLeaseMs, offer.lease / milliseconds(1));
  return out;
}

std::string EncodeVersionNotice() { return Header(kVersionNotice); }

std::optional<WorkerReport> DecodeWorkerReport(std::string_view packet) {
  WorkerReport report;
  const auto field = [&report](uint16_t tag, std::string_view value) {
    int64_t n = 0;
    switch (tag) {
      case kRound:
        return NumberAs(value, 0, INT32_MAX, &report.round);
      case kRank:
        return NumberAs(value, 0, INT32_MAX, &report.rank);
      case kLocalRank:
        return NumberAs(value, 0, UINT16_MAX, &report.local_rank);
      case kPid:
        return Number(value, INT64_MIN, INT64_MAX, &report.pid);
      case kStep:
        return Number(value, INT64_MIN, INT64_MAX, &report.step);
      case kPhase:
        return NumberAs(value, 0, INT32_MAX, &report.phase);
      case kMessage:
        report.message = value.substr(0, kMaxReportTextBytes);
        return true;
      case kSnapshotStep:
        if (!Number(value, INT64_MIN, INT64_MAX, &n)) return false;
        report.snapshot_step = n;
        return true;
      default:
        return true;  // a field of a later release
    }
  };
  if (!ForEachField(packet, kReport, field)) return std::nullopt;
  return report;
}

std::optional<AgentRequest> DecodeAgentRequest(std::string_view packet) {
  AgentRequest request;
  std::optional<TimePoint> by;
  std::string reason;
  const auto field = [&](uint16_t tag, std::string_view value) {
    int64_t n = 0;
    switch (tag) {
      case kRound:
        return NumberAs(value, 0, INT32_MAX, &request.round);
      case kTakeSnapshot:
        return NumberAs(value, 0, 1, &request.take_snapshot);
      case kMaySurvive:
        return NumberAs(value, 0, 1, &request.may_survive);
      case kRoundOver:
        return NumberAs(value, 0, 1, &request.round_over);
      case kNoRoundFollows:
        return NumberAs(value, 0, 1, &request.no_round_follows);
      case kStopByNs:
        if (!Number(value, 0, INT64_MAX, &n)) return false;
        by = TimePoint(Duration(n));
        return true;
      case kStopReason:
        reason = value.substr(0, kMaxReportTextBytes);
        return true;
      default:
        return true;
    }
  };
  if (!ForEachField(packet, kRequest, field)) return std::nullopt;
  if (by) request.stop = WorkerStop{*by, std::move(reason)};
  return request;
}

std::optional<WorkerSurvival> DecodeWorkerSurvival(std::string_view packet) {
  WorkerSurvival survival;
  bool has_state = false;
  const auto field = [&](uint16_t tag, std::string_view value) {
    switch (tag) {
      case kRound:
        return NumberAs(value, 0, INT32_MAX, &survival.round);
      case kRank:
        return NumberAs(value, 0, INT32_MAX, &survival.rank);
      case kLocalRank:
        return NumberAs(value, 0, UINT16_MAX, &survival.local_rank);
      case kPid:
        return Number(value, INT64_MIN, INT64_MAX, &survival.pid);
      case kState:
        has_state = true;
        return NumberAs(value, 1, 2, &survival.state);
      case kMessage:
        survival.message = value.substr(0, kMaxReportTextBytes);
        return true;
      default:
        return true;
    }
  };
  if (!ForEachField(packet, kSurvival, field) || !has_state) return std::nullopt;
  return survival;
}

std::optional<WorkerPage> DecodeWorkerPage(std::string_view packet) {
  WorkerPage page;
  bool has_local_rank = false;
  const auto field = [&](uint16_t tag, std::string_view value) {
    if (tag != kLocalRank) return true;
    has_local_rank = true;
    return NumberAs(value, 0, UINT16_MAX, &page.local_rank);
  };
  if (!ForEachField(packet, kPage, field) || !has_local_rank) return std::nullopt;
  return page;
}

std::optional<RoundOffer> DecodeRoundOffer(std::string_view packet) {
  RoundOffer offer;
  uint32_t seen = 0;  // a bit for each tag
  const auto field = [&](uint16_t tag, std::string_view value) {
    if (tag < 32) seen |= uint32_t{1} << tag;
    int64_t n = 0;
    switch (tag) {
      case kRound:
        return NumberAs(value, 0, INT32_MAX, &offer.round);
      case kRank:
        return NumberAs(value, 0, INT32_MAX, &offer.rank);
      case kGroupRank:
        return NumberAs(value, 0, INT32_MAX, &offer.group_rank);
      case kWorldSize:
        return NumberAs(value, 1, INT32_MAX, &offer.world_size);
      case kGroupWorldSize:
        return NumberAs(value, 1, INT32_MAX, &offer.group_world_size);
      case kRoleRank:
        return NumberAs(value, 0, INT32_MAX, &offer.role_rank);
      case kRoleWorldSize:
        return NumberAs(value, 1, INT32_MAX, &offer.role_world_size);
      case kRestartCount:
        return NumberAs(value, 0, INT32_MAX, &offer.restart_count);
      case kMasterAddr:
        offer.master_addr = value;
        return value.size() <= kMaxReportTextBytes;
      case kMasterPort:
        return NumberAs(value, 0, UINT16_MAX, &offer.master_port);
      case kNodeAddr:
        offer.node_addr = value;
        return value.size() <= kMaxReportTextBytes;
      case kLeaseMs:
        if (!Number(value, 0, INT32_MAX, &n)) return false;
        offer.lease = milliseconds(n);
        return true;
      default:
        return true;
    }
  };
  if (!ForEachField(packet, kOffer, field)) return std::nullopt;
  for (const Tag tag : {kRound, kRank, kGroupRank, kWorldSize, kGroupWorldSize, kRoleRank, kRoleWorldSize,
                        kRestartCount, kMasterAddr, kMasterPort}) {
    if ((seen >> tag & 1) == 0) return std::nullopt;
  }
  if (offer.rank.value() >= offer.world_size || offer.group_rank.value() >= offer.group_world_size ||
      offer.role_rank >= offer.role_world_size ||
      (offer.world_size > 1 && (offer.master_addr.empty() || offer.master_port == 0))) {
    return std::nullopt;
  }
  return offer;
}

std::optional<int> OtherVersion(std::string_view packet) {
  if (!HasHeader(packet)) return std::nullopt;
  const int version = Load<uint8_t>(packet.substr(4));
  if (version == kWorkerMessageVersion) return std::nullopt;
  return version;
}

}  // namespace ddprun
