// A lifetime guard for asynchronous callbacks. A guarded callback has no effect after the object that it uses
// has been destroyed.
#pragma once

#include <memory>
#include <utility>

namespace ddprun {

// Guards the callbacks that use an object. The Alive must be a member of that object.
//   Threads: only the thread that runs the callbacks.
class Alive {
 public:
  // Returns a function that calls `f`. The function does nothing after End() or after the destruction of this
  // object.
  template <typename F>
  auto Guard(F f) const {
    return [token = std::weak_ptr<int>(token_), f = std::move(f)](const auto&... args) {
      if (!token.expired()) f(args...);
    };
  }
  // Disables all functions that Guard returned.
  void End() { token_.reset(); }

 private:
  std::shared_ptr<int> token_ = std::make_shared<int>(0);  // the only strong reference
};

}  // namespace ddprun
