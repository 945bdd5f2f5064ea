// The interface between a training loop and an optimizer: one update of all parameters, and the named state
// that is carried from one update to the next.
//
//   std::unique_ptr<Optimizer> optimizer =
//       std::make_unique<AdamW>(parameters, AdamWOptions{.learning_rate = 3e-4});
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
  bool decays = true;             // weight decay applies; usually false for gains and biases
};

// A named tensor of an optimizer's state: a view that is valid as long as the optimizer.
struct StateTensor {
  std::string name;  // see StateTensorName
  std::vector<int64_t> shape{};
  absl::Span<float> values;
};

// "<optimizer>.<what>/<parameter>", such as "adamw.mean/head.weight". The names are part of the snapshot
// format: changing one makes old snapshots unreadable.
std::string StateTensorName(absl::string_view optimizer, absl::string_view what, absl::string_view parameter);

// Checks and returns `parameters`. Called by the constructor of every optimizer.
//   REQUIRES: each parameter has as many values as gradients, and names are unique. Otherwise aborts with the
//             parameter's name.
std::vector<ParameterView> CheckedParameters(std::vector<ParameterView> parameters);

struct OptimizerStep {
  int64_t step = 1;        // counted from 1 over the whole training; the caller keeps it in the snapshot
  double rate_factor = 1;  // multiplies the optimizer's learning rate in this step; for schedules
};

// An optimizer of some parameters.
//   Result:  depends, element by element, only on parameters, gradients, state and the step: equal inputs
//            give equal bits on every rank, regardless of how elements are divided into tensors or ranks.
//   State:   state() is everything that the next Step reads besides its argument, parameters and gradients. A
//            new optimizer whose state tensors are overwritten with those of another one continues
//            bit-equally.
//   Threads: one caller at a time.
//   Owns:    its state. The parameters' memory is borrowed: it outlives the optimizer and does not move.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Such as "adamw": constant, lower case, the prefix of the state's names.
  virtual absl::string_view name() const = 0;

  // One update of all parameters.
  //   REQUIRES: step.step >= 1.
  virtual void Step(const OptimizerStep& step) = 0;

  // The state, in a constant order; zero before the first Step. May be empty.
  virtual std::vector<StateTensor> state() = 0;
};

}  // namespace ddprun
