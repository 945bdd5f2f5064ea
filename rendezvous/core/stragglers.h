// Finds the ranks of a round whose steps take persistently longer than those of the others. Pure: part of RoundMachine.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/step_times.h"
#include "base/time.h"
#include "rendezvous/core/reasons.h"

namespace ddprun {

// The ranks are compared each time that new times of all of them have come, but at most every kShortest; what has not come kLongest, or
// the time of kLongestSteps steps, after the first of them, is not waited for.
// A rank is slow in a comparison if its own time (StepTimes::own) exceeds the median by a fifth, by a tenth of the step, and by half of the
// spread of its own time, because the mean of a few irregular steps says little. A rank
// that is slow in kComparisons successive comparisons is a straggler, until it is not slow in one. Ranks whose communication is
// unknown are not compared; neither are fewer than two ranks, or than half of them.
class Stragglers {
 public:
  static constexpr Duration kShortest = seconds(5);
  static constexpr Duration kLongest = seconds(30);
  static constexpr int kLongestSteps = 4;
  static constexpr int kComparisons = 6;
  // Users are told of the stragglers of at most so many nodes in a round.
  static constexpr int kMostTold = 8;

  struct Timed {
    std::string host = {};
    StepTimes times = {};  // the newest
    bool fresh = false;    // not compared yet
    int slow = 0;          // number of successive comparisons
    bool told = false;
    [[nodiscard]] bool straggles() const { return slow >= kComparisons; }
  };

  void Came(Rank rank, const std::string& host, const StepTimes& times, TimePoint now);
  // Compares the ranks if it is time. Returns new stragglers, by node; each rank at most once.
  [[nodiscard]] std::vector<note::Straggles> Compare(TimePoint now);

  const std::map<Rank, Timed>& ranks() const { return ranks_; }

 private:
  // The lower median of the fresh ranks; nullopt if they are not compared.
  [[nodiscard]] std::optional<Duration> MedianOfFresh() const;

  std::map<Rank, Timed> ranks_;
  size_t fresh_ = 0;
  TimePoint first_came_;     // meaningful if fresh_ > 0
  Duration longest_step_{};  // of the fresh ranks
  std::optional<TimePoint> compared_;
  std::set<std::string> told_;  // hosts
};

}  // namespace ddprun
