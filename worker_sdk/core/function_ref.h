// A reference to a function, for parameters that are only called during the call.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace ddprun {

template <typename Signature>
class FunctionRef;

// Does not own the function: it must outlive this object. Copying is cheap, and nothing is allocated.
template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, FunctionRef> &&
                                                    std::is_invocable_r_v<Result, F&, Args...>>>
  FunctionRef(F&& f)  // NOLINT: implicit, so that a lambda can be passed
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

}  // namespace ddprun
