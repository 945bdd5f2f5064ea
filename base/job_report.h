// Why a round failed, over all nodes: made by the coordinator, shown by each node.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/failure.h"
#include "base/ids.h"

namespace ddprun {

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
