// Collectives over all ranks of one round: the interface that every backend implements.
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

// A collective operation that was started.
//   Threads: one caller at a time.
class Pending {
 public:
  virtual ~Pending() = default;

  // Blocks until the operation completes or fails on this rank. With OK its buffers hold the result; with an
  // error their contents are undefined. Either way they are not accessed again. Later calls return the same.
  //   Errors: kUnavailable: a peer exited or left, or its node is cut off; kDeadlineExceeded: a rank's
  //           deadline passed; kAborted: Abort() was called on some rank; kInvalidArgument: the ranks' calls
  //           differ. After any error the communicator is dead on all ranks: create a new one in the next
  //           round.
  //   Text:   the first three are consequences of a failure elsewhere. Launchers recognize them by these
  //           texts, which are part of the contract; other text may precede or follow:
  //             "rank 3 of round 7 is gone"                its process exited
  //             "rank 3 of round 7 has left"               it destroyed its communicator
  //             "rank 0 of round 7 gave up operation 12"   its deadline passed ("..., waiting for rank 3")
  //             "rank 0 of round 7 gave up: <reason>"      it called Abort(reason)
  //           "no answer from rank 3 of round 7 for 5 s: the network between <node> and <node> ..." means
  //           that two nodes cannot reach each other. It is a consequence if one of the two nodes is lost.
  virtual absl::Status Wait(TimePoint deadline) = 0;
};

// Connects the ranks of one round. Messages from processes of other rounds are refused.
//   Order:   all ranks start the same operations, with the same sizes, in the same order. Operations run
//            asynchronously in that order: the caller need not Wait for one before starting the next.
//   Result:  a sum is computed element by element along one fixed tree over the ranks 0..n-1,
//              Sum(lo, hi) = Sum(lo, mid) + Sum(mid, hi), mid = lo + the largest power of two below hi - lo,
//            independent of timing, sizes and the split of ranks into nodes: bit-equal on every rank and in
//            every run. A mean is that sum divided by n.
//   Errors:  returned by Pending::Wait. A dead peer fails every operation on all ranks within one second, a
//            node that is cut off within its silence limit. A stopped or slow rank is detected only by a
//            deadline. After an error the communicator is dead: pending and later operations fail with that
//            first error.
//   Threads: one caller at a time; Abort() and status() from any thread at any time.
//   Owns:    nothing; buffers must live until Wait() returned or the communicator is destroyed. A Pending may
//            be dropped without Wait and may outlive the communicator.
//   Destructor: with no operation pending, operations started on all ranks complete; later ones fail with
//            kUnavailable on the peers. Blocks until the peers have been notified, at most 1 s; peers that
//            are busy computing do not delay it. With an operation pending, calls Abort() instead.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual Rank rank() const = 0;
  virtual int world_size() const = 0;
  virtual Round round() const = 0;

  // OK, or the error after which this communicator is dead.
  virtual absl::Status status() const = 0;

  // Reduces `values` over all ranks, in place.
  virtual std::unique_ptr<Pending> AllReduce(absl::Span<float> values, ReduceOp op) = 0;
  virtual std::unique_ptr<Pending> AllReduce(absl::Span<double> values, ReduceOp op) = 0;

  // Copies `bytes` of rank `root` to `bytes` of all ranks.
  virtual std::unique_ptr<Pending> Broadcast(absl::Span<char> bytes, Rank root) = 0;

  // Copies rank r's `mine` to all[r * mine.size()] on every rank.
  //   Errors: kInvalidArgument: all.size() != world_size() * mine.size().
  virtual std::unique_ptr<Pending> AllGather(absl::Span<const char> mine, absl::Span<char> all) = 0;

  // Completes when all ranks have started it.
  virtual std::unique_ptr<Pending> Barrier() = 0;

  // Fails all operations with kAborted and `reason`, on all ranks. Does not block.
  virtual void Abort(absl::string_view reason) = 0;
};

}  // namespace ddprun
