// An epoll set of many descriptors that an io_context watches as one descriptor.
//
// In addition to the system calls that transfer a message, Asio makes one or two more per message: a read
// that finds no data, or a call that rearms the descriptor. Here the io_context is notified once when any
// descriptor is ready, and events are then taken in batches, as in a bare epoll loop. A busy store costs as
// much as with such a loop.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

#include "absl/status/status.h"
#include "boost/asio/execution_context.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"

namespace ddprun {

// One per io_context, created on first use; while it is not empty, io_context::run() does not return. Events
// are level-triggered: a descriptor that stays ready is reported again. A turn is bounded, so that other
// handlers of the io_context can run.
//   Threads: that of the io_context.
//   Owns:    none of the added descriptors.
class PollSet final : public boost::asio::execution_context::service {
 public:
  class Handler {
   public:
    // `events`: flags of epoll(7), such as EPOLLIN. May remove and delete this handler and others.
    virtual void OnEvents(uint32_t events) = 0;

   protected:
    ~Handler() = default;
  };

  static PollSet& Of(boost::asio::io_context& io);

  // Calls `handler` for `events` on `fd` until Remove.
  //   Errors: kResourceExhausted: no descriptor or memory is available.
  absl::Status Add(int fd, uint32_t events, Handler* handler);
  //   REQUIRES: `fd` was added with `handler`.
  void Change(int fd, uint32_t events, Handler* handler);
  // The handler is not called again, not even for events of the current batch.
  //   REQUIRES: `fd` was added with `handler` and is still open.
  void Remove(int fd, Handler* handler);

  // For boost::asio::use_service only.
  static boost::asio::execution_context::id id;
  explicit PollSet(boost::asio::io_context& io);

 private:
  static constexpr int kEventsPerBatch = 128;

  void shutdown() override;
  void Await();
  void Turn();
  int Linger();

  boost::asio::posix::stream_descriptor epoll_;  // open since the first Add
  int64_t size_ = 0;
  bool awaiting_ = false;
  int lingers_to_skip_ = 0;  // turns left that do not linger, after a miss
  int skip_after_miss_ = 1;

  // The current batch: events next_..end_-1 are still to be dispatched.
  epoll_event batch_[kEventsPerBatch];
  int next_ = 0, end_ = 0;
};

}  // namespace ddprun
