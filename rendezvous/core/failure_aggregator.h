// Combines the failures on all nodes of a round into one report.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/failure.h"
#include "base/ids.h"

namespace ddprun {

// Collects the failures and the lost nodes of one round. Failure::failed_at is on the coordinator's clock.
//   Memory: one early failure per node (see ToldAtOnce); otherwise bounded for any number of failures.
//   Pure:   equal calls give equal reports.
class FailureAggregator {
 public:
  // Records the failure that made `node` stop its workers. A later call of Told may replace it with details.
  // Only the first call for each node has an effect.
  void ToldAtOnce(const NodeId& node, Failure failure);
  // Records all failures of `node`. They replace the failure given to ToldAtOnce, unless `failures` is empty.
  void Told(const NodeId& node, std::vector<Failure> failures);
  // Records that a node was lost with its workers. `line` names the node and the reason.
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

  // Adds `failure` to its group. If there are then too many groups, drops one and adds its count to `more`.
  static void Fold(Groups& groups, int& more, const Failure& failure);

  std::map<NodeId, Failure> at_once_;
  Groups groups_;          // keyed by KeyOf(failure)
  int more_failures_ = 0;  // number of failures in dropped groups
  std::vector<std::string> lost_nodes_;
  int num_lost_nodes_ = 0;
};

// Returns a one-line summary for the log.
std::string Summary(const JobReport& report);

}  // namespace ddprun
