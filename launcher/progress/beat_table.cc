#include "launcher/progress/beat_table.h"

#include <algorithm>
#include <utility>

namespace ddprun {
namespace {

// Programs compile and fill caches in the first intervals of a phase in a round.
constexpr int kWarmUp = 2;
constexpr int kEnough = 10;  // intervals of one worker, to know a phase
constexpr int kFactor = 3;   // limit of HangTimeout::kAuto / longest interval
// With HangTimeout::Auto(), a worker counts as hung after so many limits, because the first pause of a kind is longer than all
// intervals before. If such a pause has ended a round, the next one may be longer by this factor.
constexpr int kHung = 3;

}  // namespace

void BeatTable::Begin(int num_workers, int world_size, TimePoint now) {
  const bool same = std::exchange(world_size_, world_size) == world_size;
  if (!same) longest_.clear();
  reports_ = false;
  workers_.resize(num_workers);
  for (Worker& worker : workers_) {
    std::map<WorkerPhase, Intervals> intervals;
    if (same) intervals.swap(worker.intervals);
    for (auto& [phase, known] : intervals) known.this_round = 0;
    worker = {.looked = now, .intervals = std::move(intervals)};
  }
}

void BeatTable::Advance(Worker& worker, TimePoint now) {
  worker.idle += std::min<Duration>(now - worker.looked, kLongestLook);
  worker.looked = now;
}

void BeatTable::Beat(Worker& worker, WorkerPhase phase, TimePoint now) {
  Advance(worker, now);
  Intervals& intervals = worker.intervals[worker.phase];
  if (++intervals.this_round > kWarmUp) {
    ++intervals.all;
    longest_[worker.phase] = std::max(longest_[worker.phase], worker.idle);
  }
  worker.phase = phase;
  worker.idle = Duration::zero();
}

void BeatTable::Reported(LocalRank local_rank, int64_t step, WorkerPhase phase, TimePoint now) {
  Worker& worker = workers_.at(local_rank.value());
  if (worker.ended || (worker.reports && worker.step == step && worker.phase == phase)) return;
  Beat(worker, phase, now);
  worker.step = step;
  reports_ = worker.reports = true;
}

void BeatTable::Touched(LocalRank local_rank, TimePoint now) {
  Worker& worker = workers_.at(local_rank.value());
  if (worker.ended) return;
  Beat(worker, worker.phase, now);
  reports_ = worker.reports = true;
}

void BeatTable::Seen(LocalRank local_rank, TimePoint now) {
  Worker& worker = workers_.at(local_rank.value());
  if (!worker.ended && !worker.reports) Beat(worker, worker.phase, now);
}

void BeatTable::Ended(LocalRank worker) {
  workers_.at(worker.value()).ended = true;
  const bool reported = std::exchange(reports_, false);
  for (Worker& other : workers_) reports_ |= !other.ended && other.reports;
  // The others were not judged while a worker reported.
  if (!reported || reports_) return;
  for (Worker& other : workers_) other.idle = Duration::zero();
}

void BeatTable::Over(TimePoint now) {
  for (Worker& worker : workers_) {
    Advance(worker, now);
    if (const auto hung = HungAfter(worker); hung && worker.idle >= *hung) {
      cut_off_[worker.phase] = std::max(cut_off_[worker.phase], worker.idle);
    }
    worker.ended = true;
  }
}

bool BeatTable::Counts(const Worker& worker) const {
  if (worker.ended || timeout_ == HangTimeout::Off()) return false;
  return reports_ ? worker.reports : outside_ && timeout_ != HangTimeout::Auto();
}

bool BeatTable::Knows(const Worker& worker) const {
  const auto known = worker.intervals.find(worker.phase);
  return known != worker.intervals.end() && known->second.all >= kEnough &&
         known->second.this_round >= kWarmUp;
}

std::optional<Duration> BeatTable::LimitOf(const Worker& worker) const {
  if (!Counts(worker)) return std::nullopt;
  if (timeout_ != HangTimeout::Auto()) return timeout_.given();
  if (!Knows(worker)) return kUnlearnt;
  return std::max<Duration>(kFactor * longest_.at(worker.phase), kShortest);
}

std::optional<Duration> BeatTable::LimitOf(LocalRank worker) const {
  return LimitOf(workers_.at(worker.value()));
}

std::optional<Duration> BeatTable::HungAfter(const Worker& worker) const {
  const std::optional<Duration> limit = LimitOf(worker);
  if (!limit || timeout_ != HangTimeout::Auto()) return limit;
  if (!Knows(worker) || worker.phase == WorkerPhase::kFinishing) return std::nullopt;
  const auto cut_off = cut_off_.find(worker.phase);
  if (cut_off == cut_off_.end()) return kHung * *limit;
  return std::max(kHung * *limit, std::min<Duration>(kHung * cut_off->second, kUnlearnt));
}

StandstillLevel BeatTable::LevelOf(const Worker& worker) const {
  const Duration limit = *LimitOf(worker);
  if (const auto hung = HungAfter(worker); hung && worker.idle >= *hung) return StandstillLevel::kHung;
  if (worker.idle + kLookEvery >= limit) return StandstillLevel::kStill;
  return worker.idle >= limit / 2 ? StandstillLevel::kSuspect : StandstillLevel::kMoving;
}

NodeStandstill BeatTable::Look(TimePoint now) {
  NodeStandstill node{.reports = reports_, .ended = true};
  std::optional<StandstillLevel> lowest;
  std::optional<Duration> idle;
  for (Worker& worker : workers_) {
    Advance(worker, now);
    node.ended &= worker.ended;
    if (!Counts(worker)) continue;
    const StandstillLevel level = LevelOf(worker);
    lowest = std::min(level, lowest.value_or(level));
    idle = std::min(worker.idle, idle.value_or(worker.idle));
  }
  node.level = lowest.value_or(StandstillLevel::kMoving);
  if (node.level != StandstillLevel::kMoving) node.idle = *idle;
  return node;
}

void BeatTable::Skip(TimePoint now) {
  for (Worker& worker : workers_) worker.looked = now;
}

}  // namespace ddprun
