#include "proto/evidence_codec.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/time.h"
#include "proto/utf8.h"

namespace ddprun {
namespace {

constexpr int kMaxWorkers = 1 << 16;
constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxPlaceBytes = 256;
constexpr size_t kMaxStackBytes = 4096;
constexpr size_t kMaxMissing = 8;
constexpr size_t kMaxMissingBytes = 512;
constexpr int64_t kMaxMillis = int64_t{1000} * 3600 * 24 * 365 * 2;
constexpr int64_t kMaxMicros = int64_t{1000} * 1000 * 3600 * 24;

// A shorter stack tells nothing.
constexpr size_t kMinStackBytes = 64;

WorkerEvidence::State DecodeState(proto::WorkerState state) {
  using State = WorkerEvidence::State;
  switch (state) {
    case proto::WORKER_STATE_RUNNING:
      return State::kRunning;
    case proto::WORKER_STATE_SLEEPING:
      return State::kSleeping;
    case proto::WORKER_STATE_STOPPED:
      return State::kStopped;
    case proto::WORKER_STATE_TRACED:
      return State::kTraced;
    case proto::WORKER_STATE_BLOCKED:
      return State::kBlocked;
    case proto::WORKER_STATE_ENDED:
      return State::kEnded;
    default:
      return State::kUnknown;
  }
}

int64_t ToMicros(Duration d) { return std::chrono::duration_cast<std::chrono::microseconds>(d).count(); }

proto::WorkerEvidence Encode(const WorkerEvidence& worker) {
  proto::WorkerEvidence out;
  out.set_local_rank(static_cast<int>(worker.local_rank.value()));
  out.set_pid(worker.pid);
  out.set_state(static_cast<proto::WorkerState>(worker.state));  // the same numbers
  out.set_idle_ms(ToMillis(worker.idle));
  if (worker.step) out.set_step(*worker.step);
  if (worker.gpu_busy) out.set_gpu_busy_percent(*worker.gpu_busy);
  out.set_phase(Utf8Head(worker.phase, kMaxNameBytes));
  if (worker.operation) {
    out.mutable_operation()->set_kind(Utf8Head(worker.operation->kind, kMaxNameBytes));
    out.mutable_operation()->set_number(worker.operation->number);
    out.mutable_operation()->set_in_flight(worker.operation->in_flight);
  }
  return out;
}

}  // namespace

proto::Standstill EncodeStandstill(const NodeStandstill& standstill) {
  proto::Standstill out;
  out.set_level(static_cast<proto::StandstillLevel>(static_cast<int>(standstill.level) + 1));
  out.set_reports(standstill.reports);
  out.set_ended(standstill.ended);
  out.set_idle_ms(ToMillis(standstill.idle));
  return out;
}

NodeStandstill DecodeStandstill(const proto::Standstill& message) {
  const int level =
      std::clamp<int>(message.level(), proto::STANDSTILL_LEVEL_MOVING, proto::STANDSTILL_LEVEL_HUNG);
  return {.level = static_cast<StandstillLevel>(level - 1),
          .reports = message.reports(),
          .ended = message.ended(),
          .idle = milliseconds(message.idle_ms())};
}

void EncodeWorkers(const std::vector<WorkerEvidence>& workers, const std::vector<std::string>& missing,
                   size_t max_bytes, proto::Evidence& out) {
  // The fields of fixed size of all workers come first, then what is missing, then places, then stacks.
  size_t left = max_bytes - std::min(max_bytes, out.ByteSizeLong());
  size_t fit = 0;
  for (; fit < workers.size(); ++fit) {
    const proto::WorkerEvidence worker = Encode(workers[fit]);
    const size_t size = worker.ByteSizeLong() + 4;
    if (size > left) break;
    left -= size;
    *out.add_workers() = worker;
  }
  for (size_t i = 0; i < missing.size() && i < kMaxMissing && fit == workers.size(); ++i) {
    const std::string line = Utf8Line(missing[i], kMaxMissingBytes);
    if (line.size() + 4 > left) break;
    left -= line.size() + 4;
    out.add_missing(line);
  }
  for (size_t i = 0; i < fit; ++i) {
    const std::string place = Utf8Head(workers[i].place, kMaxPlaceBytes);
    if (place.size() + 4 > left) return;
    left -= place.size() + 4;
    out.mutable_workers(static_cast<int>(i))->set_place(place);
  }
  for (size_t i = 0; i < fit; ++i) {
    const size_t share = std::min(left / (fit - i), kMaxStackBytes + 4);
    if (share < kMinStackBytes) return;
    const std::string stack = Utf8Head(workers[i].stack, share - 4);
    left -= std::min(left, stack.size() + 4);
    out.mutable_workers(static_cast<int>(i))->set_stack(stack);
  }
}

std::vector<WorkerEvidence> DecodeWorkers(const proto::Evidence& message) {
  std::vector<WorkerEvidence> workers;
  for (const proto::WorkerEvidence& in : message.workers()) {
    if (workers.size() == kMaxWorkers) break;
    WorkerEvidence worker{.local_rank = LocalRank(std::clamp(in.local_rank(), 0, kMaxWorkers - 1)),
                          .pid = in.pid(),
                          .state = DecodeState(in.state()),
                          .idle = milliseconds(std::clamp<int64_t>(in.idle_ms(), 0, kMaxMillis)),
                          .phase = Utf8Line(in.phase(), kMaxNameBytes),
                          .place = Utf8Line(in.place(), kMaxPlaceBytes),
                          .stack = Utf8Head(in.stack(), kMaxStackBytes)};
    if (in.has_step()) worker.step = in.step();
    if (in.has_gpu_busy_percent()) worker.gpu_busy = std::clamp(in.gpu_busy_percent(), 0, 100);
    if (in.has_operation()) {
      worker.operation = WorkerEvidence::Operation{.kind = Utf8Line(in.operation().kind(), kMaxNameBytes),
                                                   .number = in.operation().number(),
                                                   .in_flight = in.operation().in_flight()};
    }
    workers.push_back(std::move(worker));
  }
  return workers;
}

std::vector<std::string> DecodeMissing(const proto::Evidence& message) {
  std::vector<std::string> missing;
  for (const std::string& line : message.missing()) {
    if (missing.size() == kMaxMissing) break;
    missing.push_back(Utf8Line(line, kMaxMissingBytes));
  }
  return missing;
}

proto::StepTimes EncodeStepTimes(const std::vector<WorkerSteps>& workers) {
  proto::StepTimes message;
  for (const WorkerSteps& worker : workers) {
    proto::StepTimes::Worker& out = *message.add_workers();
    out.set_local_rank(static_cast<int>(worker.local_rank.value()));
    out.set_step_us(ToMicros(worker.times.step));
    out.set_spread_us(ToMicros(worker.times.spread));
    out.set_data_us(ToMicros(worker.times.data));
    if (worker.times.communication) out.set_communication_us(ToMicros(*worker.times.communication));
    out.set_own_spread_us(ToMicros(worker.times.own_spread));
  }
  return message;
}

std::vector<WorkerSteps> DecodeStepTimes(const proto::StepTimes& message) {
  using std::chrono::microseconds;
  std::vector<WorkerSteps> workers;
  for (const proto::StepTimes::Worker& in : message.workers()) {
    if (workers.size() == kMaxWorkers) break;
    const bool valid = in.local_rank() >= 0 && in.local_rank() < kMaxWorkers && in.step_us() >= 0 &&
                       in.step_us() <= kMaxMicros && in.spread_us() >= 0 && in.spread_us() <= kMaxMicros &&
                       in.data_us() >= 0 && in.communication_us() >= 0 && in.data_us() <= in.step_us() &&
                       in.communication_us() <= in.step_us() - in.data_us() && in.own_spread_us() >= 0 &&
                       in.own_spread_us() <= kMaxMicros;
    if (!valid) continue;
    StepTimes times{.step = microseconds(in.step_us()),
                    .spread = microseconds(in.spread_us()),
                    .data = microseconds(in.data_us())};
    if (in.has_communication_us()) times.communication = microseconds(in.communication_us());
    times.own_spread = microseconds(in.own_spread_us());
    workers.push_back({LocalRank(in.local_rank()), times});
  }
  return workers;
}

}  // namespace ddprun
