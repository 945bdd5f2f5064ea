// Which ranks are behind while a round stands still, and where the others wait. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/worker_evidence.h"

namespace ddprun {

struct RankEvidence {
  Rank rank = {};
  std::string host = {};
  WorkerEvidence worker = {};
};

struct HangFinding {
  std::vector<RankEvidence> behind = {};  // ascending; empty if nothing separates a rank from the others
  bool proven = false;                    // they are stopped, or blocked in the kernel
  bool kill = false;                      // they need no time to save their state: rules 1 to 4
  bool traced = false;                    // a debugger is attached to a worker
  // One line, such as "rank 5 on node2 is in load_batch (data.py:41); 7 others wait in all-reduce, operation 8812". Empty if
  // there is no evidence.
  std::string text = {};
};

// The first of these rules that holds for a rank names those that are behind:
//   1. stopped by a signal, but not all ranks
//   2. blocked in the kernel, but at most half of the ranks
//   3. in no operation of the SDK or of NCCL, but at most half of the ranks; not those of which this is unknown
//   4. in another operation than more than half of the ranks, which are in one; only if the operations of all ranks are known
//   5. at the lowest step, but less than half of the ranks; only if the operations of all ranks are equal, or none is known: a rank
//      that has skipped an operation is at a higher step than those that wait for it
//   6. in another stack than more than half of the ranks; only if the stacks of all ranks are known and of one kind, Python or native
// A single rank is always behind.
//   ranks: in ascending order.
HangFinding FindWhoIsBehind(const std::vector<RankEvidence>& ranks);

}  // namespace ddprun
