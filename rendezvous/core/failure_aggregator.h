// What went wrong in a round, over all nodes, put together to one report.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/failure.h"
#include "base/ids.h"

namespace ddprun {

// What went wrong in one round so far. failed_at of all failures is on the coordinator's clock.
//   Memory: bounded, whatever the number of failures, but for one failure a node that was told at once.
//   Pure:   equal calls give equal reports.
class FailureAggregator {
 public:
  // `failure` made `node` stop its workers; details may follow with Told.
  void ToldAtOnce(const NodeId& node, Failure failure);
  // All failures of `node`, in the place of what it told at once, unless there are none.
  void Told(const NodeId& node, std::vector<Failure> failures);
  // A node was lost with its workers; `line` says which, and why.
  void Lost(std::string line);

  bool empty() const { return at_once_.empty() && groups_.empty() && lost_nodes_.empty(); }
  int num_lost_nodes() const { return num_lost_nodes_; }
  JobReport Report(Round round) const;

 private:
  struct Entry {
    Failure first;
    int count = 0;
    std::set<Rank> ranks;
  };
  using Groups = std::map<std::string, Entry>;

  static void Fold(Groups& groups, int& more, const Failure& failure);

  std::map<NodeId, Failure> at_once_;  // by node
  Groups groups_;                      // by what makes failures the same
  int more_failures_ = 0;
  std::vector<std::string> lost_nodes_;
  int num_lost_nodes_ = 0;
};

// One line for the log.
std::string Summary(const JobReport& report);

}  // namespace ddprun
