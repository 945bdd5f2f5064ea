// For objects with asynchronous work: what still comes when the object is gone does nothing.
#pragma once

#include <memory>
#include <utility>

namespace ddprun {

// A member of the object; all in the one thread that runs the io_context.
class Alive {
 public:
  // `f`, unless this is gone by then.
  template <typename F>
  auto Guard(F f) const {
    return [token = std::weak_ptr<int>(token_), f = std::move(f)](const auto&... args) {
      if (!token.expired()) f(args...);
    };
  }
  // From now on nothing that was guarded does anything.
  void End() { token_.reset(); }

 private:
  std::shared_ptr<int> token_ = std::make_shared<int>(0);  // shared with nobody, only watched
};

}  // namespace ddprun
