#include "tests/sim/world/straggler_rules.h"

#include <algorithm>
#include <variant>

#include "absl/strings/str_cat.h"

namespace ddprun::sim {

void StragglerRules::Step(const Assignment& round, const std::string& host, size_t workers, int percent) {
  if (percent <= 100) {
    slow_.erase(host);
    return;
  }
  const std::pair master(round.master_addr, round.master_port);
  const auto at = slow_.find(host);
  if (at == slow_.end() || at->second.master != master) {
    slow_[host] = {.master = master, .since = clock_.now(), .last = clock_.now()};
    if (static_cast<int64_t>(2 * workers) <= round.world_size) {
      clock_.After(kMost, [this, host, since = clock_.now()] { Await(host, since); });
    }
  }
  Slow& slow = slow_.at(host);
  slow.last = clock_.now();
  slow.all_over_limit = slow.all_over_limit && percent >= kSlow;
}

void StragglerRules::Await(const std::string& host, TimePoint since) {
  const auto at = slow_.find(host);
  if (at == slow_.end() || at->second.since != since || !at->second.all_over_limit) return;
  const bool others = std::any_of(slow_.begin(), slow_.end(), [&host, since](const auto& other) {
    return other.first != host && other.second.last >= since;
  });
  // Its round may be over.
  const bool steps = at->second.last >= clock_.now() - seconds(10);
  if (others || !steps || disturbed_until_ > since || at->second.told) return;
  trace_.Broken(clock_.now(), absl::StrCat(host, " has done slow steps for ", ToMillis(clock_.now() - since),
                                           " ms, but its ranks were not named"));
}

void StragglerRules::Check(const RoundEffects& effects) {
  for (const RoundEffect& effect : effects) {
    const auto* const note = std::get_if<ddprun::Note>(&effect);
    const auto* const straggles = note == nullptr ? nullptr : std::get_if<note::Straggles>(note);
    if (straggles == nullptr) continue;
    ++told_;
    const auto at = slow_.find(straggles->host);
    if (at != slow_.end() && at->second.since <= clock_.now() - kLeast) {
      at->second.told = true;
      continue;
    }
    trace_.Broken(clock_.now(),
                  absl::StrCat("a rank of ", straggles->host,
                               " is said to be slower than the others, but its host was not slow"));
  }
}

}  // namespace ddprun::sim
