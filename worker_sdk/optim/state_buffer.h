// Memory for one quantity of an optimizer's state, such as momentum: one tensor per parameter, in one
// allocation.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker_sdk/optim/optimizer.h"

namespace ddprun {

// Initially zero.
class StateBuffer {
 public:
  // `what`: the quantity's name within the tensors' names, such as "mean".
  StateBuffer(absl::string_view optimizer, absl::string_view what,
              absl::Span<const ParameterView> parameters);
  StateBuffer(const StateBuffer&) = delete;
  StateBuffer& operator=(const StateBuffer&) = delete;

  // The tensor of parameter i.
  absl::Span<float> of(size_t i) { return tensors_[i].values; }
  void AppendTo(std::vector<StateTensor>* state) const {
    state->insert(state->end(), tensors_.begin(), tensors_.end());
  }

 private:
  std::vector<float> values_;
  std::vector<StateTensor> tensors_;  // views of values_
};

}  // namespace ddprun
