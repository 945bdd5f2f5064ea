// Combines several lambdas into one visitor for std::visit.
#pragma once

namespace ddprun {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace ddprun
