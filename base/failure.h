// The failure of one worker, the order that determines the first cause, and the report of a round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/exit_info.h"
#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

// Whether a failure can have caused others, as far as is known. Decided on the worker's node by
// launcher/report/failure_origin.h; policies use only this value.
enum class FailureOrigin {
  kOwn,             // no evidence that it followed from another failure
  kFollowsAnother,  // its error text shows that it failed because another worker failed
  kStopped,         // it exited on the launcher's signal: not a failure of the job, not sent
};

// Encoded by proto/value_codec.h. launcher/report/failure_record.h has the data that stays on the node.
struct Failure {
  Rank rank = {};
  LocalRank local_rank = {};
  std::string host = {};
  std::string role = {};
  int64_t pid = 0;  // 0: never started
  ExitInfo exit = Exited{1};
  FailureOrigin origin = FailureOrigin::kOwn;
  // When the worker failed, on the monotonic clock of the process that holds this value; sent as an age. The
  // agent observes only the exit, but a worker that raises an exception may take seconds to exit, and
  // meanwhile other workers fail as a consequence. So this is the earlier of two times: the worker's exit,
  // and the end of the second that its error file names. The start of that second would order the worker
  // before workers without an error file that failed up to a second earlier. If the wall clock steps while
  // the worker exits, this value is off by the step.
  TimePoint failed_at = {};
  std::string cause = {};                  // one line for people: which rank, where, how
  std::string exception = {};              // one line: the error that the program reported; empty: none
  std::string stderr_tail = {};            // the last lines of its stderr; empty: none, or not captured
  bool tail_has_stdout = false;            // stderr_tail has both streams, which share a pipe
  std::vector<std::string> evidence = {};  // one line each: findings from the system
  std::optional<Duration> uptime = {};     // how long it ran; nullopt: unknown
  std::optional<int64_t> step = {};        // the last step reported

  bool operator==(const Failure&) const = default;
};

// The order of causes, used everywhere: failures that do not follow from another failure come first; then
// order by time, then by rank. The minimum of all failures is the first cause (torchrun: root cause).
//   REQUIRES: both times are on the same clock.
inline bool Precedes(const Failure& a, const Failure& b) {
  return std::tie(a.origin, a.failed_at, a.rank) < std::tie(b.origin, b.failed_at, b.rank);
}

// Why a round failed, over all nodes. Created by the coordinator, shown on each node.
struct JobReport {
  // Failures that differ only in rank, host, pid and time.
  struct Group {
    Failure first = {};            // precedes the others
    int count = 1;                 // including `first`
    std::vector<Rank> ranks = {};  // ascending; the lowest kMaxRanks of them

    bool operator==(const Group&) const = default;
  };
  static constexpr size_t kMaxGroups = 16;
  static constexpr size_t kMaxTails = 4;  // later groups have no stderr_tail
  static constexpr size_t kMaxRanks = 64;
  static constexpr size_t kMaxLostNodes = 16;

  Round round = {};
  std::vector<Group> groups = {};            // ordered by Precedes of `first`; empty if only nodes were lost
  int more_failures = 0;                     // failures in none of `groups`
  std::vector<std::string> lost_nodes = {};  // one line each; one more line counts the rest, if any
  std::string outcome = {};                  // what happens next: "restart 1 of 3", or why none follows

  bool operator==(const JobReport&) const = default;
};

}  // namespace ddprun
