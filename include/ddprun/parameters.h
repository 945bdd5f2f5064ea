// The parameters of a model, as the data-parallel step, optimizers and broadcasts see them: names, values, gradients.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/export.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"

namespace ddprun {

// A parameter of a model. A view: the memory belongs to the caller and must outlive every object that is given the
// parameter.
//   Shapes: value and gradient have the number of elements that `shape` gives, and the same dtype. No dimension means
//           one element; a dimension may be 0. The dtype is a floating-point type. All values and gradients of a model
//           are disjoint: a weight that is used in several places is one parameter. A value and its gradient are on the same
//           device.
struct Parameter {
  std::string name;  // unique in the model, not empty, without '/'
  std::vector<int64_t> shape;
  Tensor value;
  // Where backward writes the gradient. If `data` is null, the other members are ignored and DataParallel provides the
  // memory: see DataParallel::gradient.
  Tensor gradient;
  bool decays = true;  // whether weight decay applies; usually false for gains and biases
};

// Compares the parameters of all ranks: number, names, shapes, dtypes, types of devices, `decays`. Collective. They are in
// the memory of the host or of comm.device().
//   Errors: kInvalidArgument: they differ, or they are invalid on some rank. The message, which is the same on all
//           ranks, names the first difference and two ranks that differ. The communicator remains usable.
//           Others: those of Work::Wait.
DDPRUN_EXPORT Status CompareParameters(Communicator comm, const std::vector<Parameter>& parameters);

// Copies the values from rank `root` to all ranks. Collective. Values on a GPU: blocks until they are copied; uses a stream
// of its own.
//   REQUIRES: work on a GPU that uses the values has finished.
//   Errors: kInvalidArgument: as CompareParameters, and the ranks' roots differ or are not ranks. No value has changed,
//           and the communicator remains usable.
//           Others: those of Work::Wait. The values of ranks other than `root` are undefined.
DDPRUN_EXPORT Status BroadcastParameters(Communicator comm, const std::vector<Parameter>& parameters,
                                         int root);

}  // namespace ddprun
