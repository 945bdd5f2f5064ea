// The interface between a training loop and an optimizer: an update of all parameters, and the named state
// that one update passes to the next.
//
//   std::unique_ptr<Optimizer> optimizer =
//       std::make_unique<AdamW>(parameters, AdamWOptions{.learning_rate = 3e-4});
//   DDPRUN_RETURN_IF_ERROR(LoadOptimizerState(snapshot, optimizer.get()));  // optimizer_state.h
//   for each step: ...; optimizer->Step({.step = step, .rate_factor = Warmup(step)});
//   AddOptimizerState(*optimizer, &snapshot);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

// A named tensor of the model, with its gradient. The memory belongs to the caller.
//   Shapes: `values` and `grads` both have the number of elements given by `shape`.
struct ParameterView {
  std::string name;  // unique, without '/'
  std::vector<int64_t> shape{};
  std::span<float> values;
  std::span<const float> grads;  // read by Step
  bool decays = true;            // whether weight decay applies; usually false for gains and biases
};

// A named tensor of an optimizer's state. The view is valid during the lifetime of the optimizer.
struct StateTensor {
  std::string name;  // see StateTensorName
  std::vector<int64_t> shape{};
  std::span<float> values;
};

// "<optimizer>.<what>/<parameter>", such as "adamw.mean/head.weight". The names are part of the snapshot
// format: changing one makes old snapshots unreadable.
std::string StateTensorName(std::string_view optimizer, std::string_view what, std::string_view parameter);

// Checks and returns `parameters`. Called by the constructor of every optimizer.
//   REQUIRES: each parameter has as many values as gradients, and names are unique. Otherwise the process
//             aborts with the name of the parameter.
std::vector<ParameterView> CheckedParameters(std::vector<ParameterView> parameters);

struct OptimizerStep {
  int64_t step = 1;        // counted from 1 over the whole training; the caller stores it in the snapshot
  double rate_factor = 1;  // multiplies the optimizer's learning rate in this step; for schedules
};

// An optimizer for a fixed set of parameters.
//   Result:  the new value of an element depends only on the element's own parameter, gradient and state, and
//            on the step. Equal inputs give equal bits on every rank, regardless of how elements are divided
//            among tensors or ranks.
//   State:   state() is everything that the next Step reads besides its argument, parameters and gradients.
//            If the state tensors of a new optimizer are overwritten with those of an optimizer with the same
//            options, the new optimizer continues with bit-identical results.
//   Threads: one caller at a time.
//   Owns:    its state. The parameters' memory is borrowed: it must outlive the optimizer and must not move.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // The optimizer's name in lower case, such as "adamw". It never changes, because it is the prefix of the
  // state tensors' names.
  virtual std::string_view name() const = 0;

  // Updates all parameters once.
  //   REQUIRES: step.step >= 1.
  virtual void Step(const OptimizerStep& step) = 0;

  // Returns the state tensors, always in the same order. Their values are zero before the first Step. The
  // list may be empty.
  virtual std::vector<StateTensor> state() = 0;
};

}  // namespace ddprun
