// What a backend implements: the group of ranks behind a Communicator, and the operation behind a Work.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "ddprun/time.h"
#include "worker_sdk/comm/call.h"

namespace ddprun::internal {

//   Threads: one caller at a time.
class Operation {
 public:
  explicit Operation(Duration timeout) : timeout_(timeout) {}
  virtual ~Operation() = default;

  // As Work::Wait and Work::Done.
  virtual Status Wait(TimePoint deadline) = 0;
  virtual bool Done() = 0;
  // As Work::WaitOn. The default is for operations on the host.
  virtual Status WaitOn(const Stream& stream);
  // When the operation finished on this rank, although Wait may return later. nullopt if it has not finished, and for
  // small operations, which do not read the clock.
  virtual std::optional<TimePoint> ended() const { return std::nullopt; }
  // The limit for a Wait without a deadline.
  [[nodiscard]] Duration timeout() const { return timeout_; }

 private:
  const Duration timeout_;
};

// The operation behind a Work; null if nothing was started.
struct WorkAccess {
  static const Operation* OperationOf(const Work& work) { return work.operation_.get(); }
};

// Keeps the promises that communicator.h makes for Communicator. The destructor leaves the group.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Status status() const = 0;
  // As Communicator::device.
  virtual Device device() const { return {}; }

  // Starts the operation on memory of the host. `call.index` is not set yet. `in` and `out` are null where the operation
  // has none.
  //   REQUIRES: `call`, `in` and `out` have passed the checks of communicator.cc.
  virtual std::shared_ptr<Operation> Start(const Call& call, const void* in, void* out) = 0;
  // Likewise, on memory of device(), after the work that is in `stream` now.
  //   REQUIRES: stream.device == device(), which is not the host.
  virtual std::shared_ptr<Operation> StartOnDevice(const Call& call, const void* in, void* out,
                                                   const Stream& stream);
  // The caller's arguments for `call` are invalid: ends the group on all ranks with `why`, because the other ranks
  // would wait for an operation that never starts. Returns an operation that has failed with `why`.
  virtual std::shared_ptr<Operation> Refuse(const Call& call, const Status& why) = 0;
  virtual void Abort(std::string_view reason) = 0;
  // As Communicator::Allocate; the pointer is to the elements, and owns them.
  //   REQUIRES: count >= 0, and the size in bytes does not overflow.
  virtual StatusOr<std::shared_ptr<void>> Allocate(DType dtype, int64_t count) = 0;
  // Likewise, memory of device().
  //   REQUIRES: device() is not the host.
  virtual StatusOr<std::shared_ptr<void>> AllocateOnDevice(DType dtype, int64_t count);
  // As Communicator::Split; null if `color` is negative.
  virtual StatusOr<std::shared_ptr<Group>> Split(int color, int key) = 0;
};

}  // namespace ddprun::internal
