// Why a round ended, over all nodes: what each of them knows, put together to one page.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "base/time.h"
#include "rendezvous/core/failure.h"

namespace ddprun {

struct JobReport {
  // Failures that differ only in rank, host, pid and time.
  struct Group {
    Failure first = {};            // the earliest; its age is that at the time of the report
    int count = 1;                 // with `first`
    std::vector<Rank> ranks = {};  // ascending; the least kMaxRanks of them
  };
  static constexpr size_t kMaxGroups = 16;
  static constexpr size_t kMaxTails = 4;  // groups beyond these come without stderr
  static constexpr size_t kMaxRanks = 64;
  static constexpr size_t kMaxLostNodes = 16;

  Round round = {};
  std::vector<Group> groups = {};            // the first cause first: see RoundLosses
  int more_failures = 0;                     // that are in no group here
  std::vector<std::string> lost_nodes = {};  // one line each; the last says how many more, if there are
  std::string outcome = {};                  // what happens now: "restart 1 of 3", or why there is none
};

// What went wrong in one round so far. The first cause is the earliest failure that does not say of itself
// that it followed from another, on the coordinator's clock: a failure's own age counts back from its
// arrival.
//   Memory: bounded, whatever the number of failures, but for one failure a node that was told at once.
//   Pure:   equal calls give equal reports.
class RoundLosses {
 public:
  // `failure` made `node` stop its workers; details may follow with Told.
  void ToldAtOnce(const std::string& node, Failure failure, TimePoint now);
  // All failures of `node`, in the place of what it told at once, unless there are none.
  void Told(const std::string& node, std::vector<Failure> failures, TimePoint now);
  // A node was lost with its workers; `line` says which, and why.
  void Lost(std::string line);

  bool empty() const { return at_once_.empty() && groups_.empty() && lost_nodes_.empty(); }
  int num_lost_nodes() const { return num_lost_nodes_; }
  JobReport Report(Round round, TimePoint now) const;

 private:
  struct Entry {
    Failure first;
    TimePoint ended;
    int count = 0;
    std::set<Rank> ranks;
  };
  using Groups = std::map<std::string, Entry>;

  static void Fold(Groups& groups, int& more, const Failure& failure, TimePoint ended);

  std::map<std::string, std::pair<Failure, TimePoint>> at_once_;  // by node, with the time it ended
  Groups groups_;                                                 // by what makes failures the same
  int more_failures_ = 0;
  std::vector<std::string> lost_nodes_;
  int num_lost_nodes_ = 0;
};

// One line for the log.
std::string Summary(const JobReport& report);

}  // namespace ddprun
