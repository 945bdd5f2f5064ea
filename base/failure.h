// One worker that failed, and which of several failures is the first cause.
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

// Whether a failure can have caused others, as far as is known. launcher/report/failure_origin.h decides it, on
// the worker's node; policy reads this only.
enum class FailureOrigin {
  kOwn,             // nothing says that it followed from another one
  kFollowsAnother,  // its own words say that it failed because another worker had
  kStopped,         // it obeyed a signal of the launcher; stays on its node, as it is no failure of the job
};

// proto/failure_codec.h sends it. launcher/report/failure_record.h has what stays on the node.
struct Failure {
  Rank rank = {};
  LocalRank local_rank = {};
  std::string host = {};
  std::string role = {};
  int64_t pid = 0;  // 0: never started
  ExitInfo exit = Exited{1};
  FailureOrigin origin = FailureOrigin::kOwn;
  // When it failed, on the monotonic clock of the process that has this value; sent as an age. An exit is
  // what the node notices, but a worker that raises an exception may take seconds to exit, while others die
  // of the consequences. So this is the end of the second that the worker's error file names, or the time of
  // its exit, whichever is earlier. Not the second's beginning: a worker would precede all those without an
  // error file that failed up to a second before it. A step of the wall clock while the worker exits moves it.
  TimePoint failed_at = {};
  std::string cause = {};                  // one line for people: which rank, where, how
  std::string exception = {};              // one line: what the program says went wrong; empty: nothing
  std::string stderr_tail = {};            // its last lines; empty: none, or not seen
  bool tail_has_stdout = false;            // stderr_tail has both streams, which are one pipe
  std::vector<std::string> evidence = {};  // one line each: what the system knows
  std::optional<Duration> uptime = {};     // how long it ran; none: not known
  std::optional<int64_t> step = {};        // the last that it reported

  bool operator==(const Failure&) const = default;
};

// The order of causes, everywhere: failures that follow from no other come first, then the earlier, then the
// lower rank. The least of all failures is the first cause, or root cause.
//   REQUIRES: both times are of one clock.
inline bool Precedes(const Failure& a, const Failure& b) {
  return std::tie(a.origin, a.failed_at, a.rank) < std::tie(b.origin, b.failed_at, b.rank);
}

// Why a round failed, over all nodes: made by the coordinator, shown by each node.

struct JobReport {
  // Failures that differ only in rank, host, pid and time.
  struct Group {
    Failure first = {};            // the one that precedes the others
    int count = 1;                 // with `first`
    std::vector<Rank> ranks = {};  // ascending; the least kMaxRanks of them

    bool operator==(const Group&) const = default;
  };
  static constexpr size_t kMaxGroups = 16;
  static constexpr size_t kMaxTails = 4;  // groups beyond these come without stderr
  static constexpr size_t kMaxRanks = 64;
  static constexpr size_t kMaxLostNodes = 16;

  Round round = {};
  std::vector<Group> groups = {};            // by Precedes of their first; may be empty: a node was lost
  int more_failures = 0;                     // that are in no group here
  std::vector<std::string> lost_nodes = {};  // one line each; one more line says how many more, if there are
  std::string outcome = {};                  // what happens now: "restart 1 of 3", or why there is none

  bool operator==(const JobReport&) const = default;
};

}  // namespace ddprun
