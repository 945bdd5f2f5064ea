// Shows the agent for which operation this process waits.
#pragma once

#include "worker_sdk/comm/call.h"

namespace ddprun::internal {

// This thread waits for an operation while the object exists.
//   Threads: any.
class AwaitedOperation {
 public:
  explicit AwaitedOperation(const Call& call);
  ~AwaitedOperation();
  AwaitedOperation(const AwaitedOperation&) = delete;
  AwaitedOperation& operator=(const AwaitedOperation&) = delete;
};

// From now on, it is not known how long the process waits for operations, because they wait for each other on GPUs.
//   Threads: any.
void WaitsAreUnknown();

// The memory in which the operations are shown, with the layout of base/operation_page.h: one for the process, which exists until it
// exits. -1: the system gives none.
//   Threads: any.
int OperationPageFd();

}  // namespace ddprun::internal
