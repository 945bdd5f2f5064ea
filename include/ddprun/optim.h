// Optimizers, and schedules of the learning rate.
//
//   DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> adamw, MakeAdamW(parameters, {.learning_rate = 3e-4}));
//   for each step: ...; adamw->Step({.step = step, .rate_factor = WarmupCosine(step, 100, 10000)});
//
// With DataParallel, pass the optimizer to Finish instead of calling Step: it then updates the parameters of a bucket
// while later buckets are being reduced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/export.h"
#include "ddprun/parameters.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"

namespace ddprun {

// A named tensor, such as one of an optimizer's state. The view of an optimizer's tensor is valid during the lifetime of
// the optimizer.
struct StateTensor {
  // In an optimizer: "<optimizer>.<what>/<parameter>", such as "adamw.mean/head.weight". The names are part of the
  // snapshot format: changing one makes old snapshots unreadable.
  std::string name;
  std::vector<int64_t> shape;
  Tensor values;
};

struct OptimizerStep {
  int64_t step = 1;        // counted from 1 over the whole training; the caller stores it in the snapshot
  double rate_factor = 1;  // multiplies the optimizer's learning rate in this step; for schedules
  // Parameters on a GPU: a stream of that GPU, but not the default stream. The update is put into it, after the work that is in
  // it, and is not waited for. Must be empty for parameters on the host.
  Stream stream = {};
};

// An optimizer for a fixed set of parameters.
//   Result:  the new value of an element depends only on the element's own parameter, gradient and state, and on the
//            step. Equal inputs give equal bits on every rank, regardless of how elements are divided among tensors or
//            ranks, and of the order in which parameters are updated.
//   State:   state() is everything that the next step reads besides its arguments and the parameters. If the state
//            tensors of a new optimizer are overwritten with those of an optimizer with the same options, the new
//            optimizer continues with bit-identical results.
//   GPUs:    the state is on the device of the parameters. Updates in different streams run in the order of the calls.
//   Threads: one caller at a time.
//   Owns:    its state. The parameters' memory is borrowed: it must outlive the optimizer and must not move.
//   Destructor: of those of the library: waits for updates on a GPU, at most 10 s.
class DDPRUN_EXPORT Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // The optimizer's name in lower case, such as "adamw". It never changes, because it is the prefix of the state
  // tensors' names.
  [[nodiscard]] virtual std::string_view name() const = 0;

  // Updates parameter i once. In each step, a parameter is updated at most once; one that is not updated keeps its
  // value and its state.
  //   Shapes:   gradient: as the parameter's value, on the same device.
  //   REQUIRES: i < parameters().size(); step.step >= 1; step.stream is as described there.
  virtual void Update(size_t i, ConstTensor gradient, const OptimizerStep& step) = 0;

  // Updates all parameters, with the gradients at Parameter::gradient.
  //   REQUIRES: every gradient has memory; step.step >= 1.
  void Step(const OptimizerStep& step);

  // OK, or the first error of a call that put work on a GPU; the parameters and the state are then undefined. An error of the
  // work itself may appear in any later call for the GPU, such as DataParallel::Wait. An optimizer that passes its calls on to
  // another one returns the other one's status.
  [[nodiscard]] virtual Status status() const;

  // Returns the state tensors, always in the same order. Their values are zero before the first step. The list may be
  // empty.
  [[nodiscard]] virtual std::vector<StateTensor> state() = 0;

  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }

 protected:
  explicit Optimizer(std::vector<Parameter> parameters);

 private:
  const std::vector<Parameter> parameters_;
};

// AdamW: Adam with bias correction and decoupled weight decay. With t = `step`, counted from 1:
//   m <- beta1 * m + (1 - beta1) * g
//   v <- beta2 * v + (1 - beta2) * g^2
//   p <- p - lr * ((m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + wd * p)
// State: "adamw.mean/<parameter>" (m) for all parameters, then "adamw.square/<parameter>" (v).
//   Source: Loshchilov, Hutter: Decoupled Weight Decay Regularization, ICLR 2019, algorithm 2.
struct AdamWOptions {
  double learning_rate = 1e-3;  // lr; >= 0
  double beta1 = 0.9;           // decay rate of the mean; 0 <= beta1 < 1, also as a float32
  double beta2 = 0.999;         // decay rate of the square; 0 <= beta2 < 1, also as a float32
  // Limits the step for parameters with small gradients. A normal float32: at least 1.2e-38.
  double epsilon = 1e-8;
  double weight_decay = 0;  // wd; >= 0; applies only to parameters with `decays`
};
// The parameters are all on the host, or all on the same GPU. Equal inputs give the same bits on a GPU as on the host.
//   Errors: kInvalidArgument: an option or a parameter is invalid, a parameter is not float32, or the parameters are on several
//           devices. kResourceExhausted: no memory for the state. kFailedPrecondition: the GPU cannot be used; the message
//           says what is missing.
DDPRUN_EXPORT StatusOr<std::unique_ptr<Optimizer>> MakeAdamW(std::vector<Parameter> parameters,
                                                             const AdamWOptions& options = {});

// Stochastic gradient descent with momentum and decoupled weight decay:
//   v <- momentum * v + g
//   p <- p - lr * (v + wd * p)
// State: "sgd.momentum/<parameter>" (v); none if momentum is 0.
struct SgdOptions {
  double learning_rate = 1e-2;  // lr; >= 0
  double momentum = 0.9;        // 0 <= momentum < 1
  double weight_decay = 0;      // wd; >= 0; applies only to parameters with `decays`
};
//   Errors: as MakeAdamW.
DDPRUN_EXPORT StatusOr<std::unique_ptr<Optimizer>> MakeSgd(std::vector<Parameter> parameters,
                                                           const SgdOptions& options = {});

// Copies the optimizer's state from rank `root` to all ranks, for example from the only rank that has read a snapshot.
// Collective. State on a GPU: blocks until it is copied; uses a stream of its own.
//   REQUIRES: the state is on the host or on comm.device(). Work on a GPU that uses it has finished: see DataParallel::Wait.
//   Errors: kInvalidArgument: the names, shapes, dtypes or types of devices of the state differ among ranks, or the roots differ or are not
//           ranks. The message, which is the same on all ranks, names the first difference. The state has not changed,
//           and the communicator remains usable.
//           Others: those of Work::Wait. The state on ranks other than `root` is undefined.
DDPRUN_EXPORT Status BroadcastOptimizer(Communicator comm, Optimizer& optimizer, int root);

// Copies the values of other tensors from rank `root` to all ranks, for example of a module's buffers. They may have any
// DType. Collective.
//   REQUIRES, Errors: as BroadcastOptimizer.
DDPRUN_EXPORT Status BroadcastState(Communicator comm, const std::vector<StateTensor>& state, int root);

// Schedules, for OptimizerStep::rate_factor. Pure; equal arguments give equal bits on every machine. `step` counts from 1.

// Rises linearly to 1 at step `warmup_steps`, and stays 1. Without warm-up if warmup_steps <= 0.
DDPRUN_EXPORT double Warmup(int64_t step, int64_t warmup_steps);
// As Warmup up to step `warmup_steps`; then falls linearly to `last` at step `total_steps`, and stays `last`.
DDPRUN_EXPORT double WarmupLinear(int64_t step, int64_t warmup_steps, int64_t total_steps, double last = 0);
// As WarmupLinear, but falls along half a cosine wave.
//   Source: Loshchilov, Hutter: SGDR, ICLR 2017, without restarts.
DDPRUN_EXPORT double WarmupCosine(int64_t step, int64_t warmup_steps, int64_t total_steps, double last = 0);
// 1 for the first `every` steps; multiplied by `factor` after each `every` steps.
//   REQUIRES: every >= 1.
DDPRUN_EXPORT double StepDecay(int64_t step, int64_t every, double factor);
// The linear scaling rule: if each worker has a batch of its own size, k workers use k times the learning rate that suits
// one worker. Rises linearly from near 1 to `world_size` at step `warmup_steps`, and stays there: the full rate is too
// large for the first steps. Multiply it by another schedule. Do not use it if the global batch is fixed.
//   Source: Goyal et al.: Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour, 2017.
DDPRUN_EXPORT double LinearScaling(int64_t step, int world_size, int64_t warmup_steps);

}  // namespace ddprun
