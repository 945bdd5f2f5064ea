// Carries the messages between this rank and one other rank. Nothing blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ddprun/status.h"
#include "worker_sdk/comm/call.h"

namespace ddprun {

// A message in one direction, and how much of it was moved.
struct Transfer {
  // As both ends must describe the message: kSend, the number of the message, dtype and size. Precedes the payload.
  internal::Call call;
  char* data = nullptr;  // the payload in the caller's memory; only read if this rank sends
  size_t num_moved = 0;  // bytes of the payload
  bool begun = false;    // `call` was moved
  // The payload is elsewhere: see StagedMessage. Byte i passes through window[i % window.size()], and may move if i < num_ready.
  bool is_staged = false;
  std::span<char> window = {};
  size_t num_ready = 0;

  size_t num_left() const { return call.num_bytes - num_moved; }
  // The bytes that may move next.
  std::span<char> next() const {
    if (!is_staged) return {data + num_moved, num_left()};
    if (num_ready == num_moved) return {};
    const size_t at = num_moved % window.size();
    return window.subspan(at, std::min(num_ready - num_moved, window.size() - at));
  }
  // The message waits for StagedMessage::SetReady.
  bool is_starved() const { return is_staged && num_left() > 0 && num_ready == num_moved; }
};

enum class Moved {
  kNone,
  kSome,
  kAll,      // the transfer is complete
  kForeign,  // the peer describes the message otherwise: Channel::foreign()
};

//   Threads: one caller.
class Channel {
 public:
  virtual ~Channel() = default;

  // Each moves a part of the transfer, so that the caller can serve all channels in turn. The messages of one direction
  // must be passed one after the other, in the same order at both ends; the directions are independent.
  virtual Moved Send(Transfer& transfer) = 0;
  virtual Moved Receive(Transfer& transfer) = 0;

  const internal::Call& foreign() const { return foreign_; }
  // Not OK: the channel is broken, and moves nothing more.
  const Status& error() const { return error_; }
  // True if nothing more will arrive from a peer that has left, after a Receive that moved nothing and began after the
  // peer had left.
  virtual bool IsExhausted() const = 0;

 protected:
  internal::Call foreign_;
  Status error_;
};

}  // namespace ddprun
