// Who should be in a job and is not: nodes that were in it, and hosts that a scheduler has named.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "rendezvous/core/reasons.h"

namespace ddprun {

// All calls take O(log n), except where a list is given or made.
class AbsentNodes {
 public:
  // The first list that is not empty stands.
  void Expect(const std::vector<std::string>& hosts);
  // A node of this host is there; it takes the place of the one of that host that went first.
  void Came(const std::string& host);
  // One of those that had come is there no more.
  void Went(const std::string& host);
  // The same for one that is to be waited for, because it was in the last round.
  void Lost(const std::string& host, MissedReason why, TimePoint now);
  // The same for one that somebody took out: nobody waits for its host any more.
  void TakenOut(const std::string& host);
  // A round begins without those that were lost before.
  void Sealed() { lost_.clear(); }

  // By host; of one host the earliest first.
  std::vector<AbsentNode> List() const;

 private:
  bool told_ = false;  // whom to expect
  std::set<std::string> expected_;
  std::map<std::string, int> present_;  // nodes by host, none with 0
  std::multimap<std::string, AbsentNode> lost_;
};

}  // namespace ddprun
