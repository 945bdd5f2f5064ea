// What speaks against the hosts of a job, and against going on with it: failures and losses of nodes. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/time.h"

namespace ddprun {

// How often each host was the first cause of the end of a round.
class HostFailures {
 public:
  // Returns how often by now.
  int Failed(const std::string& host) { return ++failures_[host]; }
  int failures(const std::string& host) const {
    const auto it = failures_.find(host);
    return it == failures_.end() ? 0 : it->second;
  }

 private:
  std::map<std::string, int> failures_;
};

// Losses of nodes in a row without progress: the first costs nothing; the next ones a growing pause, since
// each may have the same cause (the job kills its nodes, a switch flaps); too many end the job.
class LossStreak {
 public:
  static constexpr int kMax = 10;
  // Without steps a round that has run for so long counts as progress.
  static constexpr Duration kProgress = seconds(60);
  static constexpr Duration kLongestPause = seconds(30);

  // A round that ran for `ran` ended because nodes were lost; `step`: the furthest that any worker has
  // reported.
  void Lost(Duration ran, std::optional<int64_t> step);
  int count() const { return count_; }
  // Before the next round: nothing for the first loss, then 1 s, 2 s, 4 s, ...
  Duration pause() const;

 private:
  int count_ = 0;
  std::optional<int64_t> step_;  // at the last loss
};

}  // namespace ddprun
