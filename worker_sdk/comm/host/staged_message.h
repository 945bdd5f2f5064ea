// A message whose payload is not in memory of the host, such as that of a GPU. It passes through a window of such memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "worker_sdk/comm/group.h"

namespace ddprun {

// Matches messages of both kinds in the order in which they were started. The caller copies between the payload and the window,
// and says with SetReady which bytes the window has, or has room for.
//   Threads: those of Operation; the functions below: any, while the group exists. They do nothing once the message has finished.
class StagedMessage : public internal::Operation {
 public:
  using Operation::Operation;

  // The bytes of the payload up to `num_ready` may be sent, or received. Byte i passes through window[i % window.size()].
  //   window: the same in all calls; used until the message has finished.
  //   num_ready: never decreases; at most num_moved() + window.size().
  virtual void SetReady(std::span<char> window, size_t num_ready) = 0;
  // Bytes that were sent, or received: their part of the window is free, or holds them.
  [[nodiscard]] virtual size_t num_moved() const = 0;
  // A deadline of the message has passed: ends communication with an error that names the ranks that hold it up. Blocks at most
  // 200 ms.
  virtual void GiveUp() = 0;
  // "message 3 from rank 0 to rank 1", by their numbers in the world.
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace ddprun
