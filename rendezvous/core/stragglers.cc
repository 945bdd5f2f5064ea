#include "rendezvous/core/stragglers.h"

#include <algorithm>
#include <utility>

namespace ddprun {
namespace {

bool IsSlow(const StepTimes& times, Duration median) {
  const Duration excess = times.own() - median;
  return excess * 5 > median && excess * 10 > times.step && excess * 2 > times.spread;
}

}  // namespace

void Stragglers::Came(Rank rank, const std::string& host, const StepTimes& times) {
  Timed& timed = ranks_[rank];
  timed.host = host;
  timed.times = times;
  if (!std::exchange(timed.fresh, true)) ++fresh_;
}

std::vector<note::Straggles> Stragglers::Compare(TimePoint now) {
  if (!compared_) compared_ = now;
  const Duration passed = now - *compared_;
  if (passed < kShortest || (passed < kLongest && fresh_ < ranks_.size())) return {};
  compared_ = now;
  const std::optional<Duration> median = MedianOfFresh();
  std::vector<note::Straggles> found;
  for (auto& [rank, timed] : ranks_) {
    if (!std::exchange(timed.fresh, false)) continue;
    if (!median || !timed.times.communication || !IsSlow(timed.times, *median)) {
      timed.slow = 0;
      continue;
    }
    if (++timed.slow < kComparisons || timed.told) continue;
    if (found.empty() || found.back().host != timed.host) {
      if (told_ == kMostTold) continue;
      ++told_;
      found.push_back({.host = timed.host, .median = *median});
    }
    timed.told = true;
    found.back().ranks.push_back(rank);
    found.back().own = std::max(found.back().own, timed.times.own());
    found.back().step = std::max(found.back().step, timed.times.step);
  }
  fresh_ = 0;
  return found;
}

std::optional<Duration> Stragglers::MedianOfFresh() const {
  std::vector<Duration> own;
  for (const auto& [rank, timed] : ranks_) {
    if (timed.fresh && timed.times.communication) own.push_back(timed.times.own());
  }
  if (own.size() < 2 || own.size() * 2 < ranks_.size()) return std::nullopt;
  const auto middle = own.begin() + static_cast<std::ptrdiff_t>((own.size() - 1) / 2);
  std::nth_element(own.begin(), middle, own.end());
  return *middle;
}

}  // namespace ddprun
