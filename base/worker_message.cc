#include "base/worker_message.h"

#include <cstring>
#include <functional>

namespace ddprun {
namespace {

constexpr uint32_t kMagic = 0x57504444;  // "DDPW"
constexpr size_t kHeaderBytes = 8;

enum Kind : uint8_t { kReport = 1, kRequest = 2, kVersionNotice = 3 };

// Tags of both kinds of messages. A tag is never reused.
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
  return out;
}

std::string EncodeVersionNotice() { return Header(kVersionNotice); }

std::optional<WorkerReport> DecodeWorkerReport(std::string_view packet) {
  WorkerReport report;
  const auto field = [&report](uint16_t tag, std::string_view value) {
    int64_t n = 0;
    switch (tag) {
      case kRound:
        if (!Number(value, 0, INT32_MAX, &n)) return false;
        report.round = Round(n);
        return true;
      case kRank:
        if (!Number(value, 0, INT32_MAX, &n)) return false;
        report.rank = Rank(n);
        return true;
      case kLocalRank:
        if (!Number(value, 0, UINT16_MAX, &n)) return false;
        report.local_rank = LocalRank(n);
        return true;
      case kPid:
        return Number(value, INT64_MIN, INT64_MAX, &report.pid);
      case kStep:
        return Number(value, INT64_MIN, INT64_MAX, &report.step);
      case kPhase:
        if (!Number(value, 0, INT32_MAX, &n)) return false;
        report.phase = static_cast<WorkerPhase>(n);
        return true;
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
  const auto field = [&request](uint16_t tag, std::string_view value) {
    int64_t n = 0;
    switch (tag) {
      case kRound:
        if (!Number(value, 0, INT32_MAX, &n)) return false;
        request.round = Round(n);
        return true;
      case kTakeSnapshot:
        if (!Number(value, 0, 1, &n)) return false;
        request.take_snapshot = n == 1;
        return true;
      default:
        return true;
    }
  };
  if (!ForEachField(packet, kRequest, field)) return std::nullopt;
  return request;
}

std::optional<int> OtherVersion(std::string_view packet) {
  if (!HasHeader(packet)) return std::nullopt;
  const int version = Load<uint8_t>(packet.substr(4));
  if (version == kWorkerMessageVersion) return std::nullopt;
  return version;
}

}  // namespace ddprun
