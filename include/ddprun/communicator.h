// Collective operations over all ranks of a round, or over a part of them.
//
//   std::vector<float> gradients = ...;
//   Work reduced = world.AllReduce(View(gradients), ReduceOp::kMean);   // starts, does not block
//   ...                                                                 // computes something else
//   DDPRUN_RETURN_IF_ERROR(reduced.Wait());
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "ddprun/export.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "ddprun/time.h"

namespace ddprun {

// The operator of a reduction. The numbers are part of the wire format.
enum class ReduceOp : uint8_t {
  kSum = 0,
  kMean = 1,  // the sum divided by the number of ranks; not defined for integers
  kMin = 2,   // kMin and kMax: NaN if any value is NaN
  kMax = 3,
  kProduct = 4,
};

// "sum", "mean"; "unknown" if `op` is none of the values above.
constexpr const char* NameOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMean:
      return "mean";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
  }
  return "unknown";
}

namespace internal {
class Group;
class Operation;
struct WorkAccess;
}  // namespace internal

// An operation that was started. May outlive its communicator.
//   Owns:    nothing. The operation uses its buffers until Wait returns, or a later operation of the communicator has
//            finished on this rank, or the last handle of the communicator is destroyed. Until then the program must
//            not write the input, and neither read nor write the output; it may pass them to later operations of the
//            same communicator, which see the results of earlier ones. Send and Receive are neither earlier nor later
//            than other operations, except that a message is later than those before it between the same two ranks in the
//            same direction: pass a buffer from one to the other only after Wait.
//   Threads: one caller at a time for a group: for its communicators and its operations together.
class [[nodiscard]] DDPRUN_EXPORT Work {
 public:
  // Nothing was started: Wait returns kFailedPrecondition.
  Work();
  explicit Work(std::shared_ptr<internal::Operation> operation);  // for the library
  ~Work();
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;

  // Blocks until the operation has completed or failed on this rank. If the status is OK, the operation's
  // buffers hold the result; otherwise the contents of the output are undefined. In both cases the
  // communicator no longer accesses the buffers. Later calls return the same status. If `deadline` passes,
  // the operation fails on all ranks. Without an argument, the deadline is the communicator's timeout from now.
  //   Errors: kUnavailable: a peer exited or left, or its node is cut off; kDeadlineExceeded: the deadline
  //           passed on this or another rank; kAborted: Abort() was called on some rank; kInvalidArgument:
  //           the ranks' calls differ, or an argument of a call is invalid. After any error the communicator is dead on all ranks: connect
  //           again in the next round. An operation that succeeded on one rank may fail on another.
  //   Text:   kUnavailable, kDeadlineExceeded and kAborted are consequences of a failure elsewhere. Launchers
  //           recognize these consequences by the texts below, which are part of the contract. A message may
  //           contain other text before and after them.
  //             "rank 3 of round 7 is gone"                rank 3's process exited
  //             "rank 3 of round 7 has left"               rank 3 destroyed its communicator
  //             "rank 0 of round 7 gave up operation 12"   rank 0's deadline passed;
  //                                                        " (message 12 from rank 3 to rank 0)" and
  //                                                        ", waiting for rank 3" may follow
  //             "rank 0 of round 7 gave up: <reason>"      rank 0 called Abort(reason)
  //           The text "no answer from rank 3 of round 7 for 5 s: the network between <node> and <node> ..."
  //           means that the two nodes cannot reach each other. This error is a consequence only if one of
  //           the two nodes is lost.
  Status Wait();
  Status Wait(TimePoint deadline);

  // Work that is put into `stream` later starts after the operation, so that the host need not wait for it. Does not wait
  // for the operation; may block until NCCL has queued it, or, for Send and Receive, until the rest of the message was put into a
  // queue of the GPU: a Receive is then about to complete. Blocks at most for the communicator's timeout. If the operation
  // fails later, work in `stream` starts when the operation no longer accesses the buffers. Call Wait, or check
  // Communicator::status, before the results are used outside the GPU.
  //   Errors: kInvalidArgument: the operation's memory is on the host, or `stream` is of another device. Others: as Wait.
  Status WaitOn(const Stream& stream);

  // True if the operation has completed or failed, so that Wait returns at once. Does not block.
  [[nodiscard]] bool Done();

 private:
  friend struct internal::WorkAccess;
  std::shared_ptr<internal::Operation> operation_;  // null: nothing was started
};

// Memory for elements that operations read and write without copies, if they are on ranks of the same node: see
// Communicator::Allocate. Movable, not copyable. May outlive its communicator.
class DDPRUN_EXPORT Buffer {
 public:
  Buffer();                                               // no elements
  Buffer(std::shared_ptr<void> memory, Tensor elements);  // for the library
  ~Buffer();
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;

  // All elements. Operations may also be given a part of them. Valid as long as this object.
  [[nodiscard]] Tensor tensor() const { return elements_; }

 private:
  std::shared_ptr<void> memory_;
  Tensor elements_;
};

struct OpOptions {
  // The operation starts after the work that is in this stream now. Required if the memory is on a GPU, and then a stream of
  // that GPU. Must be empty if the memory is on the host.
  Stream stream = {};
};

// A group of ranks. A handle: copies share the group. Rejects messages from processes of other rounds.
//   Order:   all ranks of a group must start the same operations, with the same sizes, in the same order.
//            Operations run asynchronously in that order: the caller need not wait for one operation before
//            it starts the next. Send and Receive are not part of this order.
//   Shapes:  where an operation has an input and an output, they have the same dtype and are disjoint, unless the
//            operation names a form in place. Operations without elements are allowed; they complete like all others.
//   Result:  each element is reduced along one fixed tree over the ranks 0..n-1 (op: +, min, max or *):
//              R(lo, hi) = R(lo, mid) op R(mid, hi), mid = lo + the largest power of two below hi - lo
//            The tree does not depend on timing, sizes or the split of ranks into nodes, so results are
//            bit-equal on every rank and in every run. Values of 16 bits are combined in float32 and rounded
//            to the nearest value of their type, ties to even, at each node of the tree. A mean is the result
//            of the topmost addition divided by n; for 16 bits it is rounded once, after the division.
//            Integers wrap around.
//   GPUs:    operations with memory of the GPU device() run on the GPU, through NCCL. They have an order of their own: it is
//            not defined whether an operation on the host runs before or after one on the GPU. Both may be in flight at
//            once. The order of NCCL's sums is not the one above: results are bit-equal on all ranks, but their bits may
//            differ between versions of NCCL, numbers of ranks, and from those of the host. NCCL's minimum and maximum may
//            ignore NaNs, and its sums of 16 bits may be rounded after each addition. All tensors of an operation are in
//            the memory of the same device. Send and Receive pass through memory of the host, because NCCL would run them in
//            the order of its other operations. Calls that differ among the ranks are detected when an operation has not
//            completed for 20 ms, or, if operations of the program take longer, for up to 1 s. An operation that a rank which
//            has left did not start fails when the deadline passes.
//   Errors:  returned by Work::Wait. All operations fail on all ranks within one second after a peer dies,
//            and within the silence limit plus one second after a node is cut off. A stopped or slow rank is
//            detected only by a deadline. After an error the communicator is dead: pending and later
//            operations fail with that first error.
//            Two cases are detected only by the next operation: ranks on different nodes whose broadcasts have
//            different roots, and ranks that start different numbers of operations.
//   Threads: one caller at a time for a group; Abort() and status() from any thread at any time.
//   Destructor: that of the last handle leaves the group. If no operation is pending on this rank, the peers
//            complete the operations that all ranks have started, and their later operations fail with
//            kUnavailable. Blocks until the peers have been notified, at most 1 s; a peer that is busy
//            computing does not delay the destructor. If an operation is pending, calls Abort() instead.
class DDPRUN_EXPORT Communicator {
 public:
  // An empty handle: size() is 0, and operations fail with kFailedPrecondition.
  Communicator();
  explicit Communicator(std::shared_ptr<internal::Group> group);  // for the library
  ~Communicator();
  Communicator(const Communicator&);
  Communicator& operator=(const Communicator&);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  [[nodiscard]] int rank() const;  // in the group, 0..size() - 1; -1 for an empty handle
  [[nodiscard]] int size() const;
  // OK while the communicator is usable; otherwise the first error.
  [[nodiscard]] Status status() const;
  // The device whose memory operations accept in addition to that of the host: see ConnectOptions::device. The host if there
  // is none.
  [[nodiscard]] Device device() const;

  // Sets out[i] on every rank to the reduction of in[i] over all ranks.
  //   In place: in.data == out.data, as the second form does.
  Work AllReduce(ConstTensor in, Tensor out, ReduceOp op, const OpOptions& options = {});
  Work AllReduce(Tensor inout, ReduceOp op, const OpOptions& options = {}) {
    return AllReduce(inout, inout, op, options);
  }
  // Like AllReduce, with the result only on rank `root`; the other ranks' `out` is not used.
  //   In place: in.data == out.data on the root.
  Work Reduce(ConstTensor in, Tensor out, ReduceOp op, int root, const OpOptions& options = {});
  // Reduces, and gives each rank one part of the result: rank r gets elements r * out.count and following.
  //   Shapes: in.count == size() * out.count.
  //   In place: `out` is part rank() of `in`.
  Work ReduceScatter(ConstTensor in, Tensor out, ReduceOp op, const OpOptions& options = {});
  // Copies `in` of each rank r to `out` of every rank, at element r * in.count.
  //   Shapes: out.count == size() * in.count.
  //   In place: `in` is part rank() of `out`.
  Work AllGather(ConstTensor in, Tensor out, const OpOptions& options = {});
  // Sends part d of `in` to rank d, and receives from rank s part s of `out`.
  //   Shapes: in.count == out.count, a multiple of size().
  Work AllToAll(ConstTensor in, Tensor out, const OpOptions& options = {});
  // Copies `inout` of rank `root` to that of all other ranks.
  Work Broadcast(Tensor inout, int root, const OpOptions& options = {});
  // Completes once all ranks have started it. Does not wait for work on a GPU.
  Work Barrier();

  // Sends `in` to rank `to`, which receives it with Receive.
  //   Order:  the messages from one rank to another one match in the order in which they were started. They progress
  //           independently of all other messages, of those in the other direction, and of other operations. All ranks
  //           may therefore start to send before they start to receive, and then wait. A message whose memory is on a GPU
  //           keeps its place in that order while it waits for work in OpOptions::stream.
  //   GPUs:   each rank chooses where its memory is: a Send of memory of a GPU may match a Receive of memory of the host.
  //           NCCL does not carry messages, so they progress while its operations wait for other ranks.
  //   Shapes: the matching Receive has the same count and dtype.
  //   Result: a Send may complete before the matching Receive has started, but must not be relied on to do so.
  //   Costs:  a communicator with a GPU and other ranks pins 1 MiB of memory of the host for each direction of a pair, at most
  //           8 MiB, and 64 KiB for each other rank. Without that memory, messages of memory of a GPU fail on all ranks
  //           with kResourceExhausted.
  //   Errors: after a rank has left, its messages whose Send had completed can still be received. Other messages to it or
  //           from it fail with kUnavailable. Messages between the remaining ranks are not affected.
  Work Send(ConstTensor in, int to, const OpOptions& options = {});
  Work Receive(Tensor out, int from, const OpOptions& options = {});

  // Collective. Forms new groups: the ranks that pass the same `color` form one, ordered by (key, rank). A rank that
  // passes kNoColor, or another negative number, is in no group and gets an empty communicator. Blocks until the ranks
  // of the new group are connected, at most for the setup timeout of Connect.
  //   Groups:  no order is defined between operations of different groups, so operations of several groups over the
  //            same ranks may be in flight at once, started in any order and from different threads. An error in one
  //            group is an error in all groups that come from the same Connect. A communicator keeps those that it was
  //            split from alive. Error messages name ranks by their number in the world.
  //   Speed:   if the order of the ranks interleaves nodes, ranks of the same node communicate over TCP. The order of the
  //            world does not.
  //   Costs:   a group has two threads per rank, shared memory as described in docs/collectives.md, and connections
  //            of its own between nodes.
  //   Errors:  kFailedPrecondition: the communicator is empty; others: those of Connect and Work::Wait. After an
  //            error all groups are dead.
  StatusOr<Communicator> Split(int color, int key = 0);
  static constexpr int kNoColor = -1;

  // Collective. Returns memory for `count` elements on this rank, initially zero, that the ranks of a node share. An
  // all-reduce whose output is in such memory moves less data: each rank writes its part of the result directly to
  // the outputs of all ranks of its node. The pages are freed when all ranks of the node have destroyed their buffers.
  //   After an error of an operation, its output may still change, until all ranks of the node have returned from
  //   Wait or have exited.
  //   device: the host, or device(): then the memory is the GPU's, which the ranks do not share.
  //   Shapes: `count` >= 0, equal on all ranks.
  //   Errors: kResourceExhausted: the machine, the control group or the GPU does not have the memory; the message has the size
  //           that is needed. Returned by all ranks; no memory is then allocated, and the communicator remains usable.
  //           kInvalidArgument: the ranks' arguments differ, likewise; others: those of Work::Wait.
  StatusOr<Buffer> Allocate(DType dtype, int64_t count, Device device = {});

  // Fails all operations on all ranks with kAborted and a message that contains the first 180 bytes of `reason`. Does
  // not block.
  void Abort(std::string_view reason);

 private:
  std::shared_ptr<internal::Group> group_;
};

}  // namespace ddprun
