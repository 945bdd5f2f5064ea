// Calls that may block for as long as a kernel runs, with a deadline for the caller.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "base/time.h"

namespace ddprun {

// cuMemAlloc, cuMemFree, cuMemHostAlloc, cuMemFreeHost, cuModuleUnload and cuDevicePrimaryCtxRelease may wait until the device
// is idle. It never is if a kernel waits for a rank that has exited. A thread makes these calls one after the other, and the
// caller waits for the thread.
//   Threads: any.
class BlockingCalls {
 public:
  BlockingCalls();
  // Waits for the calls, at most `kExitLimit`. Calls that have not returned by then are made later, or never if the process
  // exits.
  ~BlockingCalls();
  BlockingCalls(const BlockingCalls&) = delete;
  BlockingCalls& operator=(const BlockingCalls&) = delete;

  // Makes the call on the thread. Returns true once it has returned, and false after `limit`, or at once if an earlier call
  // has exceeded its limit. After false, the call is made or returns later.
  //   Owns: `call` owns what it uses, or uses what lives as long as the process.
  bool Run(std::function<void()> call, Duration limit);

 private:
  static constexpr Duration kExitLimit = seconds(1);
  struct State;
  static void Loop(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
  std::thread thread_;
};

}  // namespace ddprun
