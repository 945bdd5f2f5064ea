// What a backend implements: the group of ranks behind a Communicator, and the operation behind a Work.
#pragma once

#include <memory>
#include <string_view>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
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
  // The limit for a Wait without a deadline.
  [[nodiscard]] Duration timeout() const { return timeout_; }

 private:
  const Duration timeout_;
};

// Keeps the promises that communicator.h makes for Communicator. The destructor leaves the group.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Status status() const = 0;

  // Starts the operation. `call.index` is not set yet.
  //   REQUIRES: `call`, `in` and `out` have passed the checks of communicator.cc.
  virtual std::shared_ptr<Operation> Start(const Call& call, const void* in, void* out) = 0;
  // The caller's arguments for `call` are invalid: ends the group on all ranks with `why`, because the other ranks
  // would wait for an operation that never starts. Returns an operation that has failed with `why`.
  virtual std::shared_ptr<Operation> Refuse(const Call& call, const Status& why) = 0;
  virtual void Abort(std::string_view reason) = 0;
};

}  // namespace ddprun::internal
