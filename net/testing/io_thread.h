// An io_context that runs on a separate thread, so that a test can be a blocking client of servers that use
// the io_context.
#pragma once

#include <future>
#include <thread>

#include "base/time.h"
#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"

namespace ddprun {

class IoThread {
 public:
  IoThread() : work_(io_.get_executor()), thread_([this] { io_.run(); }) {}
  // REQUIRES: all objects that use the io_context have been destroyed on its thread.
  ~IoThread() {
    work_.reset();
    thread_.join();
  }

  boost::asio::io_context& io() { return io_; }

  // Calls `f` on the thread and returns its result.
  template <typename F>
  auto Run(F f) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    boost::asio::post(io_, [&task] { task(); });
    return result.get();
  }

  // Calls `f` repeatedly on the thread until `f` returns true. Returns false if that takes longer than 20 s.
  template <typename F>
  bool Eventually(F f) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(20);
    while (!Run(f)) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace ddprun
