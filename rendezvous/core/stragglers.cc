#include "rendezvous/core/stragglers.h"

#include <algorithm>
#include <utility>

namespace ddprun {
namespace {

bool IsSlow(const StepTimes& times, Duration median) {
  const Duration excess = times.own() - median;
  return excess * 5 > median && excess * 10 > times.step && excess * 2 > times.own_spread;
}

}  // namespace

void Stragglers::Came(Rank rank, const std::string& host, const StepTimes& times, TimePoint now) {
  if (fresh_ == 0) {
    first_came_ = now;
    longest_step_ = {};
  }
  longest_step_ = std::max(longest_step_, times.step);
  Timed& timed = ranks_[rank];
  timed.host = host;
  timed.times = times;
  if (!std::exchange(timed.fresh, true)) ++fresh_;
}

std::vector<note::Straggles> Stragglers::Compare(TimePoint now) {
  if (!compared_) compared_ = now;
  if (now - *compared_ < kShortest) return {};
  const Duration most = std::max<Duration>(kLongest, kLongestSteps * longest_step_);
  if (fresh_ < ranks_.size() && now - first_came_ < most) return {};
  compared_ = now;
  const std::optional<Duration> median = MedianOfFresh();
  std::vector<note::Straggles> found;
  for (auto& [rank, timed] : ranks_) {
    if (!std::exchange(timed.fresh, false) || !median) continue;
    if (!timed.times.communication || !IsSlow(timed.times, *median)) {
      timed.slow = 0;
      continue;
    }
    if (++timed.slow < kComparisons || timed.told) continue;
    if (!told_.contains(timed.host)) {
      if (told_.size() == kMostTold) continue;
      told_.insert(timed.host);
    }
    timed.told = true;
    const auto of_host =
        std::find_if(found.begin(), found.end(),
                     [&host = timed.host](const note::Straggles& note) { return note.host == host; });
    note::Straggles& note = of_host == found.end()
                                ? found.emplace_back(note::Straggles{.host = timed.host, .median = *median})
                                : *of_host;
    note.ranks.push_back(rank);
    if (timed.times.own() < note.own) continue;
    note.own = timed.times.own();
    note.step = timed.times.step;
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
