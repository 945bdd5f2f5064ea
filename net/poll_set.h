// An epoll set of many descriptors that an io_context watches as one descriptor.
//
// For each message, Asio makes one or two more system calls than the transfer requires: a read that finds
// no data, or a call that rearms the descriptor. A PollSet avoids these calls. When any of its descriptors
// is ready, the PollSet notifies the io_context once and then handles events in batches, like a plain epoll
// loop.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

#include "absl/status/status.h"
#include "boost/asio/execution_context.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"

namespace ddprun {

// There is one PollSet per io_context, created on first use. While the set is not empty, io_context::run()
// does not return. Events are level-triggered: a descriptor that stays ready is reported again. The set
// handles events in turns. Each turn has a maximum number of events and a maximum duration, so that other
// handlers of the io_context can run between turns.
//   Threads: only the thread of the io_context.
//   Owns:    none of the added descriptors.
class PollSet final : public boost::asio::execution_context::service {
 public:
  class Handler {
   public:
    // `events` has flags of epoll(7), such as EPOLLIN. May remove and delete this handler and others.
    virtual void OnEvents(uint32_t events) = 0;

   protected:
    ~Handler() = default;
  };

  static PollSet& Of(boost::asio::io_context& io);

  // Calls `handler` when one of `events`, EPOLLERR or EPOLLHUP is ready on `fd`, until Remove is called.
  //   Errors: kResourceExhausted: no descriptor or memory is available.
  absl::Status Add(int fd, uint32_t events, Handler* handler);
  // Replaces the events that Add or the last Change specified for `fd`.
  //   REQUIRES: `fd` was added with `handler`.
  void Change(int fd, uint32_t events, Handler* handler);
  // Removes `fd`. The handler is not called again, not even for events of the current batch.
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
  int lingers_to_skip_ = 0;  // number of upcoming calls to Linger that return without polling
  int skip_after_miss_ = 1;  // value of lingers_to_skip_ after the next miss; see Linger

  // The current batch. The events next_ to end_-1 have not been dispatched yet.
  epoll_event batch_[kEventsPerBatch];
  int next_ = 0, end_ = 0;
};

}  // namespace ddprun
