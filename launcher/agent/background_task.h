// Work that may take as long as a name server that does not answer, done where nobody has to wait for it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/time.h"
#include "boost/asio/io_context.hpp"

namespace ddprun {

// Runs `work` in a thread of its own, then `done` from `io`; or `done` after `limit`, and `work` goes on
// unheard, also past the end of `io`.
//   work: touches nothing that may end before it does.
void RunInBackground(boost::asio::io_context& io, Duration limit, std::function<void()> work,
                     std::function<void(bool in_time)> done);

// The same of work with a result; none: it was not there in time.
template <typename T>
void ComputeInBackground(boost::asio::io_context& io, Duration limit, std::function<T()> work,
                         std::function<void(std::optional<T>)> done) {
  auto result = std::make_shared<std::optional<T>>();
  RunInBackground(
      io, limit, [result, work = std::move(work)] { *result = work(); },
      [result, done = std::move(done)](bool in_time) { done(in_time ? std::move(*result) : std::nullopt); });
}

}  // namespace ddprun
