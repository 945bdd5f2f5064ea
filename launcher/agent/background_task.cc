#include "launcher/agent/background_task.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "os/descriptor.h"

namespace ddprun {
namespace {

using boost::asio::posix::stream_descriptor;

// State that only the thread of `io` uses. The background thread has its own duplicate of the eventfd.
struct Waiting {
  Waiting(boost::asio::io_context& io, int fd, std::function<void(bool)> handler)
      : bell(io, fd), timer(io), done(std::move(handler)) {}

  void End(bool in_time) {
    if (!done) return;
    boost::system::error_code ignored;
    bell.close(ignored);
    timer.cancel();
    std::exchange(done, nullptr)(in_time);
  }

  stream_descriptor bell;
  boost::asio::steady_timer timer;
  std::function<void(bool)> done;
};

// Blocks all signals in the calling thread, so that they are delivered to the thread of `io`.
void BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

void RunInBackground(boost::asio::io_context& io, Duration limit, std::function<void()> work,
                     std::function<void(bool in_time)> done) {
  UniqueFd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  UniqueFd ringer(bell.get() < 0 ? -1 : fcntl(bell.get(), F_DUPFD_CLOEXEC, 0));
  if (ringer.get() < 0) {
    boost::asio::post(io, [done = std::move(done)] { done(false); });
    return;
  }
  const auto waiting = std::make_shared<Waiting>(io, bell.Release(), std::move(done));
  // Orders the memory accesses of `work` before those of `done`. The C++ memory model knows nothing of an eventfd.
  const auto finished = std::make_shared<std::atomic<bool>>(false);
  try {
    std::thread([work = std::move(work), finished, ringer = std::move(ringer)] {
      BlockSignals();
      work();
      finished->store(true, std::memory_order_release);
      eventfd_write(ringer.get(), 1);
    }).detach();
  } catch (const std::system_error&) {  // no thread available
    boost::asio::post(io, [waiting] { waiting->End(false); });
    return;
  }
  waiting->timer.expires_after(limit);
  waiting->timer.async_wait([waiting](const boost::system::error_code& error) {
    if (!error) waiting->End(false);
  });
  waiting->bell.async_wait(stream_descriptor::wait_read,
                           [waiting, finished](const boost::system::error_code& error) {
                             if (!error) waiting->End(finished->load(std::memory_order_acquire));
                           });
}

}  // namespace ddprun
