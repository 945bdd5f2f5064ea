// One worker that ended badly by itself, not by the launcher's doing, as its node tells it;
// proto/rendezvous.proto has the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

struct Failure {
  Rank rank = {};
  LocalRank local_rank = {};
  std::string host = {};
  std::string role = {};
  int64_t pid = 0;               // 0: never started
  int exit_code = 0;             // meaningful if signal is 0
  int signal = 0;                // 0: it exited
  std::string cause = {};        // one line for people: which rank, where, how
  std::string exception = {};    // one line: what the program itself says went wrong; empty: it did not say
  std::string stderr_tail = {};  // its last lines; empty: none, or not seen
  std::vector<std::string> evidence = {};  // one line each: what the system knows
  bool consequence = false;                // its own words say that it failed because another worker had
  Duration age = {};                       // how long before the node said so it ended
  std::optional<Duration> uptime = {};     // how long it ran; none: not told
  std::optional<int64_t> step = {};        // the last that it reported
  bool stuck = false;  // it has not ended and no signal ends it; exit code and signal mean nothing

  bool operator==(const Failure&) const = default;
};

}  // namespace ddprun
