// Collectives over all ranks of one round: the interface that every backend keeps.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/time.h"

namespace ddprun {

enum class ReduceOp { kSum, kMean };

// A collective that was started and may not have ended.
//   Threads: one caller at a time.
class Pending {
 public:
  virtual ~Pending() = default;

  // Returns when the operation has ended on this rank: with OK its buffers hold the result, with an error
  // their contents are undefined. Either way they are not touched again. A second call returns the same.
  //   Errors: kUnavailable: a peer is gone; kDeadlineExceeded: one did not come in time; kAborted: Abort()
  //           was called on some rank; kInvalidArgument: the ranks' calls differ. After any of them the
  //           communicator is dead, on all ranks: make one under the next round.
  //   Words:  the first three are consequences of what happened elsewhere. Launchers tell them from causes by
  //           their words, so these are part of the contract, whatever stands around them:
  //             "rank 3 of round 7 is gone"                its process has ended
  //             "rank 3 of round 7 has left"               it destroyed its communicator
  //             "rank 0 of round 7 gave up operation 12"   the deadline passed ("..., waiting for rank 3")
  //             "rank 0 of round 7 gave up: <reason>"      Abort(reason)
  //           "no answer from rank 3 of round 7 for 5 s: the network between <node> and <node> ..." is said
  //           where two nodes do not hear each other; it follows from elsewhere when one of them is lost.
  virtual absl::Status Wait(TimePoint deadline) = 0;
};

// The ranks of one round, talking. A communicator lives and dies with its round: what a process of another
// round sends is refused.
//   Order:   all ranks start the same operations, of the same sizes, in the same order. They run in that
//            order and beside the caller, who need not Wait for one before starting the next.
//   Result:  a sum is that of one fixed tree over the rank numbers 0..n-1,
//              Sum(lo, hi) = Sum(lo, mid) + Sum(mid, hi), mid = lo + the largest power of two below hi - lo,
//            element by element, whatever the split of ranks into nodes, the sizes and the timing: bit-equal
//            on every rank and in every run. A mean is that sum divided by n.
//   Errors:  appear in Pending::Wait. A dead peer ends every operation on all ranks within a second; a node
//            that is cut off, within its silence limit; a stopped or slow rank is the business of the
//            deadline. After an error the communicator is dead: what is
//            pending or is started later ends with that first error.
//   Threads: one caller at a time, Abort() and status() excepted: any thread, any time.
//   Owns:    nothing; buffers must live until Wait() returned or the communicator is destroyed. A Pending may
//            be dropped without Wait and may outlive the communicator.
//   End:     destroying it with nothing pending takes leave of the others: what they have started in common
//            still ends well, what needs this rank further ends with kUnavailable. It returns when they have
//            heard it, whatever they are doing, or after a second. With something pending it is Abort().
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual Rank rank() const = 0;
  virtual int world_size() const = 0;
  virtual Round round() const = 0;

  // OK, or the error that this communicator died of.
  virtual absl::Status status() const = 0;

  // Reduces `values` over all ranks, in place.
  virtual std::unique_ptr<Pending> AllReduce(absl::Span<float> values, ReduceOp op) = 0;
  virtual std::unique_ptr<Pending> AllReduce(absl::Span<double> values, ReduceOp op) = 0;

  // Copies `bytes` of rank `root` to all ranks.
  virtual std::unique_ptr<Pending> Broadcast(absl::Span<char> bytes, Rank root) = 0;

  // Puts rank r's `mine` at all[r * mine.size()] on every rank.
  //   Errors: kInvalidArgument: all.size() != world_size() * mine.size().
  virtual std::unique_ptr<Pending> AllGather(absl::Span<const char> mine, absl::Span<char> all) = 0;

  // Ends when all ranks have started it.
  virtual std::unique_ptr<Pending> Barrier() = 0;

  // Ends everything with kAborted and `reason`, on all ranks. Returns at once.
  virtual void Abort(absl::string_view reason) = 0;
};

}  // namespace ddprun
