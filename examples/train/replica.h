// A rank's copy of the model with its optimizer, on the host or on a GPU: what Trainer needs of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "examples/train/model/model_config.h"
#include "examples/train/options.h"
#include "worker_sdk/core/function_ref.h"
#include "worker_sdk/snapshot/snapshot.h"

namespace ddprun::train {

// The sequences that a rank computes in a step.
struct ReplicaShape {
  int max_batch = 1;      // of a pass
  int max_sequences = 1;  // of a step
};

// A step: BeginStep; for each pass Forward, then Backward; Losses once. On a GPU, Forward and Backward put work into stream()
// and do not wait for it.
//   Errors:  of a host: none. Of a GPU: those of the driver and of cuBLAS; the object is then of no use.
//   Threads: one caller at a time.
class Replica {
 public:
  virtual ~Replica() = default;

  [[nodiscard]] virtual const std::vector<TensorSpec>& tensors() const = 0;
  // Where the parameters and the gradients are.
  [[nodiscard]] virtual Device device() const = 0;
  [[nodiscard]] bool on_host() const { return device().type == DeviceType::kHost; }
  // Of the passes. On the host: empty.
  [[nodiscard]] virtual Stream stream() const = 0;
  // What computes: "avx2", "baseline" or "cuda". The bits of the results depend on it.
  [[nodiscard]] virtual std::string_view kind() const = 0;
  // For the parameters of tensors(), without memory for gradients.
  [[nodiscard]] virtual Optimizer& optimizer() = 0;

  virtual void BeginStep() = 0;
  // As Gpt::Forward, except that Losses has the losses.
  virtual Status Forward(std::span<const std::span<const uint8_t>> batch, float scale) = 0;
  // Computes the gradients of the pass at grad(i). If `is_last`, adds to them those of the earlier passes of the step, in the
  // order of tree_sum.h, and calls ready(i) for each as soon as it is final, or on a GPU as soon as it will be when the work that
  // is in stream() is done.
  virtual Status Backward(FunctionRef<float*(size_t tensor)> grad, FunctionRef<void(size_t tensor)> ready,
                          bool is_last) = 0;
  // The losses of all sequences of the step, in order; valid until the next step. On the host they are known after Forward. On
  // a GPU, blocks until the last Forward is done.
  virtual StatusOr<std::span<const double>> Losses() = 0;

  // The parameters in the memory of the host, flat, laid out by tensors(). On a GPU, a copy.
  [[nodiscard]] virtual std::span<float> host_parameters() = 0;
  // Copies from and to the device what host_parameters and the snapshot's optimizer state are copies of; blocks. Nothing on the
  // host.
  //   REQUIRES: other work on a GPU that uses the values has finished.
  virtual Status ToHost() = 0;
  virtual Status ToDevice() = 0;
  // Views of the host's copy of the optimizer's state, which are valid as long as this object.
  virtual void AddOptimizerStateTo(Snapshot* snapshot) = 0;
  // Sets the host's copy to zero, which is the state before the first step.
  virtual void ClearOptimizerState() = 0;
  // Overwrites the host's copy. Errors: those of worker_sdk/optim/optimizer_state.h.
  virtual Status LoadOptimizerStateFrom(const Snapshot& snapshot) = 0;
};

// On the host. Parameters are zero.
//   REQUIRES: LayersFor<float>(options.cpu) != null.
std::unique_ptr<Replica> MakeHostReplica(const Options& options, const ReplicaShape& shape);
// On `device`. On a GPU, parameters are undefined until ToDevice.
//   Errors: of a GPU: those of MakeGpuReplica.
StatusOr<std::unique_ptr<Replica>> MakeReplica(const Options& options, const ReplicaShape& shape,
                                               const Device& device);

}  // namespace ddprun::train
