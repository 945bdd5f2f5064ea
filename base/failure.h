// The failure of one worker, the order that determines the first cause, and the report on a failed round.
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

// Whether a failure may have caused other failures. launcher/report/failure_origin.h determines this value on
// the worker's node, from the available evidence.
enum class FailureOrigin {
  kOwn,             // there is no evidence that another failure caused this one
  kFollowsAnother,  // the error text shows that the worker failed because another worker had failed
  kStopped,         // the worker ended after the launcher's stop signal; not a job failure and not sent
};

// The failure of one worker, as sent to the coordinator by proto/value_codec.h. Data about the failure that
// stays on the node is in launcher/report/failure_record.h.
struct Failure {
  Rank rank = {};
  LocalRank local_rank = {};
  std::string host = {};
  std::string role = {};
  int64_t pid = 0;  // 0 if the worker never started
  ExitInfo exit = Exited{1};
  FailureOrigin origin = FailureOrigin::kOwn;
  // When the worker failed, on the monotonic clock of the process that holds this value. Messages carry the
  // age of the failure instead, because processes on different hosts have different clocks.
  //
  // This is the earlier of two times: the worker's exit, and the end of the second in the timestamp of its
  // error file. The agent observes only the exit, but a worker that raises an exception may take seconds to
  // exit, and other workers may fail as a consequence in that time. The start of the second would be too
  // early: the worker would then precede workers without an error file that failed up to a second earlier.
  // If the wall clock steps while the worker exits, this value is wrong by the size of the step.
  TimePoint failed_at = {};
  std::string cause = {};        // one line to display: the rank, the host and how the worker ended
  std::string exception = {};    // one line: the error that the program reported; may be empty
  std::string stderr_tail = {};  // the last lines of stderr; empty if none were captured
  // True if the worker lives: it has ended its round without being asked, because of the error `exception`, and takes part
  // in the next round. `exit` is then Exited{1}.
  bool parked = false;
  bool tail_has_stdout = false;            // true if stderr_tail includes stdout, because both share a pipe
  std::vector<std::string> evidence = {};  // evidence from the system, such as an OOM kill; one line each
  std::optional<Duration> uptime = {};     // how long the worker ran; nullopt if unknown
  std::optional<int64_t> step = {};        // the last step that the worker reported; nullopt if none

  bool operator==(const Failure&) const = default;
};

// Orders failures by origin, then by time, then by rank. Failures with the origin kOwn precede all others.
// The minimum of all failures is the first cause, which torchrun calls root cause.
//   REQUIRES: both times are on the same clock.
inline bool Precedes(const Failure& a, const Failure& b) {
  return std::tie(a.origin, a.failed_at, a.rank) < std::tie(b.origin, b.failed_at, b.rank);
}

// Why a round failed: the failures on all nodes. Created by the coordinator and shown on each node.
struct JobReport {
  // Failures with the same origin, the same exit and the same exception. Words of the exception that
  // contain a digit are not compared, because they may be ranks, pids or addresses.
  struct Group {
    Failure first = {};            // precedes the other failures of the group
    int count = 1;                 // number of failures, including `first`
    std::vector<Rank> ranks = {};  // in ascending order; if there are more than kMaxRanks, only the lowest

    bool operator==(const Group&) const = default;
  };
  static constexpr size_t kMaxGroups = 16;
  static constexpr size_t kMaxTails = 4;  // only the first kMaxTails groups have a stderr_tail
  static constexpr size_t kMaxRanks = 64;
  static constexpr size_t kMaxLostNodes = 16;

  Round round = {};
  std::vector<Group> groups = {};  // in the order of their first failures; empty if only nodes were lost
  int more_failures = 0;           // number of failures that are in none of `groups`
  // One line for each lost node. If more than kMaxLostNodes were lost, one more line gives the number of the
  // remaining lost nodes.
  std::vector<std::string> lost_nodes = {};
  std::string outcome = {};  // what happens next: "restart 1 of 3", or why there is no restart

  bool operator==(const JobReport&) const = default;
};

}  // namespace ddprun
