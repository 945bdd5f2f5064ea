// Lifetime guard for asynchronous callbacks: those that run after their object is destroyed have no effect.
#pragma once

#include <memory>
#include <utility>

namespace ddprun {

// Make it a member of the object that the callbacks use.
//   Threads: the one that runs the io_context.
class Alive {
 public:
  // Wraps `f`: the result calls `f`, or does nothing after End() or destruction.
  template <typename F>
  auto Guard(F f) const {
    return [token = std::weak_ptr<int>(token_), f = std::move(f)](const auto&... args) {
      if (!token.expired()) f(args...);
    };
  }
  // Disables all functions wrapped so far.
  void End() { token_.reset(); }

 private:
  std::shared_ptr<int> token_ = std::make_shared<int>(0);  // never shared, only observed
};

}  // namespace ddprun
