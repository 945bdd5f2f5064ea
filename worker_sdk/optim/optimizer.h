// What a training loop needs of an optimizer: one update of all parameters, and the state that it carries from one
// update to the next, by name.
//
//   std::unique_ptr<Optimizer> optimizer = std::make_unique<AdamW>(parameters, AdamWOptions{.learning_rate = 3e-4});
//   RETURN_IF_ERROR(LoadOptimizerState(snapshot, optimizer.get()));  // optimizer_state.h
//   for each step: ...; optimizer->Step({.step = step, .rate_factor = Warmup(step)});
//   AddOptimizerState(*optimizer, &snapshot);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun {

// A named tensor of the model, with its gradient. The memory belongs to the caller.
//   Shapes: values and grads have as many elements as `shape` says.
struct ParameterView {
  std::string name;  // unique, without '/'
  std::vector<int64_t> shape{};
  absl::Span<float> values;
  absl::Span<const float> grads;  // read by Step
  bool decays = true;             // weight decay applies; false for gains and biases by custom
};

// A named tensor of an optimizer: a view of its memory, as long as the optimizer lives.
struct StateTensor {
  std::string name;  // see StateTensorName
  std::vector<int64_t> shape{};
  absl::Span<float> values;
};

// "<optimizer>.<what>/<parameter>", such as "adamw.mean/head.weight". The names are part of the snapshot format: one
// that changes makes old snapshots unreadable.
std::string StateTensorName(absl::string_view optimizer, absl::string_view what, absl::string_view parameter);

// `parameters`, checked: every constructor of an optimizer calls it.
//   REQUIRES: of each parameter, as many values as gradients; names unique. Aborts with the name otherwise.
std::vector<ParameterView> CheckedParameters(std::vector<ParameterView> parameters);

struct OptimizerStep {
  int64_t step = 1;        // counted from 1 over the whole training; the caller keeps it in the snapshot
  double rate_factor = 1;  // of this step, times the optimizer's learning rate: where schedules come in
};

// An optimizer of some parameters.
//   Result:  depends on parameters, gradients, state and the step, element by element: equal inputs give equal
//            bits on every rank, and it makes no difference how elements are divided into tensors or ranks.
//   State:   state() is everything that the next Step reads besides its argument. A new optimizer whose state
//            tensors are overwritten with those of another one continues as that one would, to the last bit.
//   Threads: one caller at a time.
//   Owns:    its state. The parameters' memory belongs to the caller, lives longer and does not move.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // "adamw": lower case, constant, the prefix of its state's names.
  virtual absl::string_view name() const = 0;

  // One update of all parameters.
  //   REQUIRES: step.step >= 1.
  virtual void Step(const OptimizerStep& step) = 0;

  // The state, in an order that does not change; zero before the first Step. May be empty.
  virtual std::vector<StateTensor> state() = 0;
};

}  // namespace ddprun
