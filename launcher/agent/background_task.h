// Runs blocking work, such as a name lookup, in a thread, with a deadline.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/time.h"
#include "boost/asio/io_context.hpp"

namespace ddprun {

// Runs `work` in a new thread. Calls `done` once, on the thread of `io`, after this call has returned. The
// argument of `done` is true if `work` has finished within `limit`. The argument is false if `work` has not
// finished, or if no thread or descriptor is available. After `limit`, `work` continues to run and may
// outlive `io`.
//   work: must use only objects that it owns.
void RunInBackground(boost::asio::io_context& io, Duration limit, std::function<void()> work,
                     std::function<void(bool in_time)> done);

// Like RunInBackground, for work that returns a result. Calls `done` with nullopt where RunInBackground
// passes false.
template <typename T>
void ComputeInBackground(boost::asio::io_context& io, Duration limit, std::function<T()> work,
                         std::function<void(std::optional<T>)> done) {
  auto result = std::make_shared<std::optional<T>>();
  RunInBackground(
      io, limit, [result, work = std::move(work)] { *result = work(); },
      [result, done = std::move(done)](bool in_time) { done(in_time ? std::move(*result) : std::nullopt); });
}

// Whether the work of the last call still runs. It may run without limit after its deadline.
//   Threads: one caller at a time; the work may set the flag in its own thread.
class LastWork {
 public:
  // Returns the flag that the work sets when it ends. The work must own it.
  std::shared_ptr<std::atomic<bool>> Begin() {
    const auto ended = std::make_shared<std::atomic<bool>>(false);
    ended_ = ended;
    return ended;
  }
  // False also if the work was never started, because its flag is gone.
  bool runs() const {
    const auto ended = ended_.lock();
    return ended != nullptr && !ended->load();
  }

 private:
  std::weak_ptr<std::atomic<bool>> ended_;
};

}  // namespace ddprun
