// Collectives over all ranks of one round: the interface that every backend implements.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/time.h"
#include "ddprun/status.h"

namespace ddprun {

enum class ReduceOp { kSum, kMean };

// A collective operation that was started.
//   Threads: one caller at a time.
class Pending {
 public:
  virtual ~Pending() = default;

  // Blocks until the operation completes or fails on this rank. If the status is OK, the operation's buffers
  // hold the result; otherwise their contents are undefined. In both cases the communicator no longer
  // accesses the buffers. Later calls return the same status.
  //   Errors: kUnavailable: a peer exited or left, or its node is cut off; kDeadlineExceeded: the deadline
  //           passed on this or another rank; kAborted: Abort() was called on some rank; kInvalidArgument:
  //           the ranks' calls differ, or an argument of a call is invalid. After any error the communicator
  //           is dead on all ranks: create a new one in the next round.
  //   Text:   kUnavailable, kDeadlineExceeded and kAborted are consequences of a failure elsewhere. Launchers
  //           recognize these consequences by the texts below, which are part of the contract. A message may
  //           contain other text before and after them.
  //             "rank 3 of round 7 is gone"                rank 3's process exited
  //             "rank 3 of round 7 has left"               rank 3 destroyed its communicator
  //             "rank 0 of round 7 gave up operation 12"   rank 0's deadline passed; ", waiting for rank 3"
  //                                                        may follow
  //             "rank 0 of round 7 gave up: <reason>"      rank 0 called Abort(reason)
  //           The text "no answer from rank 3 of round 7 for 5 s: the network between <node> and <node> ..."
  //           means that the two nodes cannot reach each other. This error is a consequence only if one of
  //           the two nodes is lost.
  virtual Status Wait(TimePoint deadline) = 0;
};

// Connects the ranks of one round. Messages from processes of other rounds are rejected.
//   Order:   all ranks must start the same operations, with the same sizes, in the same order. Operations run
//            asynchronously in that order: the caller need not wait for one operation before it starts the
//            next.
//   Result:  each element is summed along one fixed tree over the ranks 0..n-1:
//              Sum(lo, hi) = Sum(lo, mid) + Sum(mid, hi), mid = lo + the largest power of two below hi - lo
//            The tree does not depend on timing, sizes or the split of ranks into nodes, so results are
//            bit-equal on every rank and in every run. A mean is that sum divided by n.
//   Errors:  returned by Pending::Wait. All operations fail on all ranks within one second after a peer dies,
//            and within the silence limit plus one second after a node is cut off. A stopped or slow rank is
//            detected only by a deadline. After an error the communicator is dead: pending and later
//            operations fail with that first error.
//   Threads: one caller at a time; Abort() and status() from any thread at any time.
//   Owns:    nothing; buffers must live until Wait() has returned or the communicator is destroyed. A Pending
//            may be dropped without Wait and may outlive the communicator.
//   Destructor: if no operation is pending on this rank, the peers complete the operations that all ranks
//            have started, and their later operations fail with kUnavailable. Blocks until the peers have
//            been notified, at most 1 s; a peer that is busy computing does not delay the destructor. If an
//            operation is pending, calls Abort() instead.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual Rank rank() const = 0;
  virtual int world_size() const = 0;
  virtual Round round() const = 0;

  // OK while the communicator is usable; otherwise the first error.
  virtual Status status() const = 0;

  // Reduces `values` over all ranks, in place.
  virtual std::unique_ptr<Pending> AllReduce(std::span<float> values, ReduceOp op) = 0;
  virtual std::unique_ptr<Pending> AllReduce(std::span<double> values, ReduceOp op) = 0;

  // Copies `bytes` on rank `root` to `bytes` on all other ranks.
  virtual std::unique_ptr<Pending> Broadcast(std::span<char> bytes, Rank root) = 0;

  // On every rank, copies `mine` of each rank r to `all` at offset r * mine.size().
  //   Errors: kInvalidArgument: all.size() != world_size() * mine.size().
  virtual std::unique_ptr<Pending> AllGather(std::span<const char> mine, std::span<char> all) = 0;

  // Returns an operation that completes once all ranks have started it.
  virtual std::unique_ptr<Pending> Barrier() = 0;

  // Fails all operations on all ranks with kAborted and a message that contains `reason`. Does not block.
  virtual void Abort(std::string_view reason) = 0;
};

}  // namespace ddprun
