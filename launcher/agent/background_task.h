// Runs blocking work, such as a name lookup, in a thread, with a deadline.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/time.h"
#include "boost/asio/io_context.hpp"

namespace ddprun {

// Runs `work` in a new thread, then calls `done` once from `io`, never before this function returns: with
// true when `work` has finished, or with false after `limit` or if no thread or descriptor is available.
// `work` is not cancelled; it may outlive `io`.
//   work: must only use objects that it owns.
void RunInBackground(boost::asio::io_context& io, Duration limit, std::function<void()> work,
                     std::function<void(bool in_time)> done);

// Like RunInBackground, for work with a result; nullopt where RunInBackground gives false.
template <typename T>
void ComputeInBackground(boost::asio::io_context& io, Duration limit, std::function<T()> work,
                         std::function<void(std::optional<T>)> done) {
  auto result = std::make_shared<std::optional<T>>();
  RunInBackground(
      io, limit, [result, work = std::move(work)] { *result = work(); },
      [result, done = std::move(done)](bool in_time) { done(in_time ? std::move(*result) : std::nullopt); });
}

}  // namespace ddprun
