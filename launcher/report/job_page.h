// The page for people that says why a round of the job ended, over all its nodes: what failed first, how,
// what it said itself, what the system knows, what else failed, and what happens now.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

// One failed worker. Texts may hold anything that a worker can print.
struct PageFailure {
  Rank rank;
  LocalRank local_rank;
  std::string host;
  pid_t pid = 0;                           // 0: it never ran, `cause` says why
  int exit_code = 0;                       // meaningful if signal is 0
  int signal = 0;                          // 0: it exited
  std::string cause = {};                  // one line: which rank, where, how
  std::optional<Duration> uptime = {};     // none: not known
  std::optional<int64_t> step = {};        // last that it reported
  std::string exception = {};              // what it says itself went wrong, one line; empty: nothing known
  std::string stderr_tail = {};            // its last lines; empty: none, or not seen
  std::vector<std::string> evidence = {};  // what the system knows, one line each
  bool consequence = false;                // it failed because another one had
  bool stuck = false;                      // it has not ended; exit code and signal mean nothing
};

struct JobPage {
  // Failures that are the same but for rank, host, process and time.
  struct Group {
    PageFailure first;                // the earliest
    int count = 1;                    // with `first`
    std::vector<int64_t> ranks = {};  // ascending, with `first`; of many only some
  };
  Round round{0};
  std::vector<Group> groups = {};            // the first cause first; may be empty: a node was lost
  int more_failures = 0;                     // in no group
  std::vector<std::string> lost_nodes = {};  // one line each
  std::string outcome = {};                  // what happens now
};

// The page, at most 100 letters wide but for the places of a traceback, without colours, from its first rule
// to the newline after its last. Equal pages give equal texts.
std::string FormatJobPage(const JobPage& page);

// For a node that has just shown `shown`, the report of its own failures, when the job has one node and the
// page one group: what that does not say yet, without rules. The exception is left out when `shown` has it,
// and the last lines of stderr when `shown` has all of them.
//   REQUIRES: page.groups.size() == 1.
std::string FormatWhatIsNew(const JobPage& page, absl::string_view shown);

// "1-3, 5, 8, 9" for ascending numbers.
std::string FormatRanks(const std::vector<int64_t>& ranks);

// "350 ms", "12.3 s", "5 min 2 s", "3 h 12 min", "2 d 3 h"; negative ones as 0.
std::string FormatUptime(Duration uptime);

}  // namespace ddprun
