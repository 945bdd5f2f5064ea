// The messages that one connection sends, or those that it receives.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/time.h"
#include "worker_sdk/comm/call.h"

namespace ddprun {

// Precedes the payload of every message.
struct Frame {
  static constexpr uint64_t kMagic = 0x31454d4152465044;  // "DPFRAME1"
  uint64_t magic = kMagic;
  int64_t round = 0;
  uint64_t chunk = 0;
  uint32_t phase = 0;
  uint32_t reserved = 0;
  uint64_t num_bytes = 0;  // of the payload
  internal::Call call;
};

// One direction of a connection: a queue of messages, which move in order.
//   Threads: one caller.
class MessageFlow {
 public:
  enum class State {
    kReady,    // the first message may move
    kBlocked,  // the socket would block
    kBroken,   // the connection is broken; error() has the reason
    kForeign,  // the received frame differs from the expected one
  };

  // `fd`: a socket, which must outlive the flow.
  MessageFlow(int fd, bool sends) : fd_(fd), sends_(sends) {}

  // Adds a message. Its payload is the concatenation of `parts`; `frame.num_bytes` need not be set.
  void Add(const Frame& frame, std::vector<iovec> parts);
  // Moves the first message until it is complete or the state is not kReady, and returns true if it is complete.
  //   REQUIRES: !empty().
  bool Move();
  // Removes the first message.
  void Pop() { messages_.pop_front(); }
  // The socket may move data again, if the state is kBlocked.
  void Unblock() {
    if (state_ == State::kBlocked) state_ = State::kReady;
  }

  int fd() const { return fd_; }
  bool sends() const { return sends_; }
  bool empty() const { return messages_.empty(); }
  State state() const { return state_; }
  int error() const { return error_; }  // an errno
  // Of the first message: the frame that this side sends or expects, and the frame that has arrived.
  //   REQUIRES: !empty().
  const Frame& frame() const { return messages_.front().expected; }
  const Frame& arrived() const { return messages_.front().frame; }
  // When the last byte moved, or the first message was added, whichever is later.
  TimePoint last_moved() const { return last_moved_; }

 private:
  struct Message {
    Frame frame;  // to send, or as received
    Frame expected;
    std::vector<iovec> parts;  // the frame and the payload; a part that has moved in part is shortened
    size_t next = 0;           // index of the first part that is not complete
    bool done() const { return next == parts.size(); }
    void Advance(size_t num_bytes);
  };

  int fd_;
  bool sends_;
  State state_ = State::kReady;
  int error_ = 0;
  std::deque<Message> messages_;
  TimePoint last_moved_ = {};
};

}  // namespace ddprun
