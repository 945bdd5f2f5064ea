// Memory for one quantity of an optimizer's state, such as momentum: one tensor per parameter, in one allocation.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "worker_sdk/device/array_ops.h"

namespace ddprun {

// StateTensor::name.
std::string StateTensorName(std::string_view optimizer, std::string_view what, std::string_view parameter);

// float32, on the device of an ArrayOps. The values are initially zero. Movable.
class StateBuffer {
 public:
  // `what` is the name of the quantity within the tensors' names, such as "mean".
  //   Errors: those of ArrayOps::Allocate.
  static StatusOr<StateBuffer> Create(ArrayOps& ops, std::string_view optimizer, std::string_view what,
                                      std::span<const Parameter> parameters);

  // Returns the values for parameter i.
  [[nodiscard]] float* of(size_t i) const { return static_cast<float*>(tensors_[i].values.data); }
  void AppendTo(std::vector<StateTensor>* state) const {
    state->insert(state->end(), tensors_.begin(), tensors_.end());
  }

 private:
  StateBuffer() = default;

  std::shared_ptr<void> memory_;
  std::vector<StateTensor> tensors_;  // views of memory_
};

}  // namespace ddprun
