// What the implementations of Optimizer share.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "worker_sdk/device/array_ops.h"
#include "worker_sdk/optim/state_buffer.h"

namespace ddprun {

// OK if the parameters are valid, float32, and on one device. `optimizer`: its name in errors, such as "AdamW".
//   Errors: kInvalidArgument: the message names the parameter.
Status CheckFloat32(std::string_view optimizer, const std::vector<Parameter>& parameters);

// An optimizer whose update is an operation of ArrayOps, on the device of its parameters.
class ArrayOptimizer : public Optimizer {
 public:
  void Update(size_t i, ConstTensor gradient, const OptimizerStep& step) final;
  Status status() const final { return status_; }
  std::vector<StateTensor> state() final;

 protected:
  // `state`: on the device of `ops`, as are the parameters.
  //   REQUIRES: CheckFloat32(parameters).
  ArrayOptimizer(std::vector<Parameter> parameters, std::unique_ptr<ArrayOps> ops,
                 std::vector<StateBuffer> state);

  // Puts the update of parameter i into step.stream.
  virtual Status Apply(ArrayOps& ops, size_t i, const ConstTensor& gradient, const OptimizerStep& step) = 0;
  // The values of state tensor `what` for parameter i.
  [[nodiscard]] float* State(size_t what, size_t i) const { return state_[what].of(i); }

 private:
  // Makes step.stream wait for updates in other streams.
  Status UseStream(const Stream& stream);

  const std::vector<StateBuffer> state_;
  // Its stream follows all updates. Destroyed before the state that they use.
  const std::unique_ptr<ArrayOps> ops_;
  Stream last_;  // of the last update; checked
  Status status_;
};

}  // namespace ddprun
