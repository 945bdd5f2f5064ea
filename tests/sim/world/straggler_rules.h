// Rules about ranks that are slower than the others.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/assignment.h"
#include "base/time.h"
#include "rendezvous/core/round_events.h"
#include "tests/sim/world/sim_clock.h"
#include "tests/sim/world/trace.h"

namespace ddprun::sim {

// - A rank is named as slower than the others only if all steps of its host in the last kLeast were slow.
// - If a host, as the only one, does slow steps for kMost in a round of which it has at most half of the ranks, without a disturbance of agents, coordinators
//   and the network, then its ranks are named.
class StragglerRules {
 public:
  // A step is slow from this share of its usual time on, in percent.
  static constexpr int kSlow = 150;

  StragglerRules(SimClock* clock, Trace* trace) : clock_(*clock), trace_(*trace) {}

  // The workers of the host, so many, do a step in this share of its usual time.
  void Step(const Assignment& round, const std::string& host, size_t workers, int percent);
  // After each step of a coordinator's machine.
  void Check(const RoundEffects& effects);
  // See HangRules.
  void DisturbedUntil(TimePoint until) { disturbed_until_ = until; }
  int64_t told() const { return told_; }

 private:
  static constexpr Duration kLeast = seconds(25), kMost = seconds(150);
  struct Slow {
    std::pair<std::string, int> master;  // of the round
    TimePoint since, last;               // the first and the last of successive slow steps in the round
    bool all_over_limit = true;          // kSlow
    bool told = false;
  };

  void Await(const std::string& host, TimePoint since);

  SimClock& clock_;
  Trace& trace_;
  std::map<std::string, Slow> slow_;  // by host
  TimePoint disturbed_until_ = SimClock::kStart;
  int64_t told_ = 0;
};

}  // namespace ddprun::sim
