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
// launcher/report/failure_origin.h; policies read only this.
enum class FailureOrigin {
  kOwn,             // no evidence that it followed from another one
  kFollowsAnother,  // its error text shows that it failed because another worker failed
  kStopped,         // it obeyed the launcher's signal: not a failure of the job, stays on its node
};

// Encoded by proto/value_codec.h. launcher/report/failure_record.h holds what stays on the node.
struct Failure {
  Rank rank = {};
  LocalRank local_rank = {};
  std::string host = {};
  std::string role = {};
  int64_t pid = 0;  // 0: never started
  ExitInfo exit = Exited{1};
  FailureOrigin origin = FailureOrigin::kOwn;
  // When it failed, on the monotonic clock of the process that holds this value; sent as an age. The node
  // observes only the exit, but a worker that raises an exception may take seconds to exit, and others fail
  // as a consequence meanwhile. So this is the end of the second that the worker's error file names, or the
  // time of its exit, whichever is earlier. The beginning of that second would put a worker before those
  // without an error file that failed up to a second before it. A step of the wall clock while the worker
  // exits shifts this value.
  TimePoint failed_at = {};
  std::string cause = {};                  // one line for people: which rank, where, how
  std::string exception = {};              // one line: the error that the program reported; empty: none
  std::string stderr_tail = {};            // its last lines; empty: none, or not captured
  bool tail_has_stdout = false;            // stderr_tail has both streams, which share a pipe
  std::vector<std::string> evidence = {};  // one line each: findings of the system
  std::optional<Duration> uptime = {};     // how long it ran; none: unknown
  std::optional<int64_t> step = {};        // the last one reported

  bool operator==(const Failure&) const = default;
};

// The order of causes, used everywhere: failures that do not follow from another one first, then the earlier
// one, then the lower rank. The minimum of all failures is the first cause (torchrun: root cause).
//   REQUIRES: both times are on the same clock.
inline bool Precedes(const Failure& a, const Failure& b) {
  return std::tie(a.origin, a.failed_at, a.rank) < std::tie(b.origin, b.failed_at, b.rank);
}

// Why a round failed, over all nodes. Made by the coordinator, shown by each node.
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
  int more_failures = 0;                     // in none of `groups`
  std::vector<std::string> lost_nodes = {};  // one line each; one more line counts the rest, if any
  std::string outcome = {};                  // what happens next: "restart 1 of 3", or why none follows

  bool operator==(const JobReport&) const = default;
};

}  // namespace ddprun
