// Many descriptors behind one: an epoll set of its own, which an io_context watches.
//
// Asio spends one or two system calls on each message beyond those that move it: a read that finds nothing
// yet, or arming the descriptor again. Here the io_context is told once that something is ready, then batch
// after batch is taken as by a bare epoll loop; a busy store costs what such a loop costs.
#pragma once

#include <sys/epoll.h>

#include <cstdint>

#include "absl/status/status.h"
#include "boost/asio/execution_context.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"

namespace ddprun {

// One for each io_context, made at its first use; it is work for the io_context while anything is in it.
// Events are level-triggered: what is not taken is told again. A turn is bounded, so that others have theirs.
//   Threads: that of the io_context.
//   Owns:    no descriptor of others.
class PollSet final : public boost::asio::execution_context::service {
 public:
  class Handler {
   public:
    // `events`: EPOLLIN and the like, as epoll(7) has them. The handler may remove and delete itself and
    // others.
    virtual void OnEvents(uint32_t events) = 0;

   protected:
    ~Handler() = default;
  };

  static PollSet& Of(boost::asio::io_context& io);

  // Tells `handler` of `events` of `fd` until they are removed.
  //   Errors: kResourceExhausted: no descriptor or memory for it.
  absl::Status Add(int fd, uint32_t events, Handler* handler);
  // REQUIRES: `fd` was added with `handler`.
  void Change(int fd, uint32_t events, Handler* handler);
  // Nothing more is told, also of what has been seen already. To be called before `fd` is closed.
  void Remove(int fd, Handler* handler);

  // What Asio calls.
  static boost::asio::execution_context::id id;
  explicit PollSet(boost::asio::io_context& io);

 private:
  static constexpr int kEventsPerBatch = 128;

  void shutdown() override;
  void Await();
  void Turn();
  int Linger();

  boost::asio::posix::stream_descriptor epoll_;  // open from the first Add on
  int64_t size_ = 0;
  bool awaiting_ = false;
  int lingers_to_skip_ = 0;  // since lingering was in vain
  int skip_after_miss_ = 1;

  // The batch being told: those from next_ to end_ are yet to be.
  epoll_event batch_[kEventsPerBatch];
  int next_ = 0, end_ = 0;
};

}  // namespace ddprun
