// Memory for one quantity of an optimizer's state, such as momentum: one tensor per parameter, in one allocation.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/optim.h"

namespace ddprun {

// StateTensor::name.
std::string StateTensorName(std::string_view optimizer, std::string_view what, std::string_view parameter);

// float32. The values are initially zero.
class StateBuffer {
 public:
  // `what` is the name of the quantity within the tensors' names, such as "mean".
  StateBuffer(std::string_view optimizer, std::string_view what, std::span<const Parameter> parameters);
  StateBuffer(const StateBuffer&) = delete;
  StateBuffer& operator=(const StateBuffer&) = delete;

  // Returns the values for parameter i.
  std::span<float> of(size_t i) {
    const Tensor& values = tensors_[i].values;
    return {static_cast<float*>(values.data), static_cast<size_t>(values.count)};
  }
  void AppendTo(std::vector<StateTensor>* state) const {
    state->insert(state->end(), tensors_.begin(), tensors_.end());
  }

 private:
  std::vector<float> values_;
  std::vector<StateTensor> tensors_;  // views of values_
};

}  // namespace ddprun
