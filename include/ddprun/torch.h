// LibTorch: data-parallel training of a torch::nn::Module. Header only; the program's build compiles it, with the LibTorch
// that the program uses.
//
//   torch::optim::AdamW adamw(model->parameters());
//   DDPRUN_ASSIGN_OR_RETURN(auto ddp, TorchDataParallel::Create(world, *model));
//   for each step:
//     ddp->Begin();                                 // instead of adamw.zero_grad()
//     loss(model->forward(batch)).backward();       // reduces gradients while backward computes others
//     DDPRUN_RETURN_IF_ERROR(ddp->Finish());
//     adamw.step();
#pragma once

#include <ATen/MemoryOverlap.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/data_parallel.h"
#include "ddprun/optim.h"
#include "ddprun/parameters.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"

namespace ddprun {

// A view of the elements of `tensor`, in the order of memory. The elements of a bool tensor count as uint8: a sum of them
// may be no valid bool.
//   Errors: kInvalidArgument: the tensor is not in the memory of the host, not dense, or of a type that has no DType.
inline StatusOr<Tensor> View(const at::Tensor& tensor) {
  const auto fault = [&](const std::string& what) {
    return InvalidArgumentError("a tensor of type " + std::string(tensor.toString()) + what);
  };
  if (!tensor.defined()) return InvalidArgumentError("an undefined tensor");
  if (!tensor.device().is_cpu()) return fault(" is not in the memory of the host");
  if (tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense())
    return fault(" is not dense");
  DType dtype;
  switch (tensor.scalar_type()) {
    case at::kFloat:
      dtype = DType::kFloat32;
      break;
    case at::kDouble:
      dtype = DType::kFloat64;
      break;
    case at::kHalf:
      dtype = DType::kFloat16;
      break;
    case at::kBFloat16:
      dtype = DType::kBFloat16;
      break;
    case at::kInt:
      dtype = DType::kInt32;
      break;
    case at::kLong:
      dtype = DType::kInt64;
      break;
    case at::kByte:
    case at::kBool:
      dtype = DType::kUInt8;
      break;
    default:
      return fault(" has no DType");
  }
  return Tensor{tensor.data_ptr(), tensor.numel(), dtype};
}

namespace internal {

// The parameters of `module`, each once: under its first name if it is tied.
inline std::vector<std::pair<std::string, at::Tensor>> NamedParameters(const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::set<const void*> seen;
  for (const auto& item : module.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second)
      parameters.emplace_back(item.key(), item.value());
  }
  return parameters;
}

// Returns `status`; if it is an error, the other ranks do not wait for this one.
inline Status AbortUnlessOk(Communicator& comm, Status status) {
  if (!status.ok()) comm.Abort(status.message());
  return status;
}

}  // namespace internal

// The parameters of `module` that require gradients, named as named_parameters() names them. A parameter with several names
// has the first one. Parameters of one dimension do not decay. Gradients have no memory of their own: DataParallel
// provides it.
//   Errors: those of View; kInvalidArgument: a parameter is not contiguous.
inline StatusOr<std::vector<Parameter>> ParametersOf(torch::nn::Module& module) {
  std::vector<Parameter> parameters;
  for (const auto& [name, tensor] : internal::NamedParameters(module)) {
    if (!tensor.requires_grad()) continue;
    if (!tensor.is_contiguous()) {
      return InvalidArgumentError("parameter " + name + " is not contiguous: use contiguous()");
    }
    DDPRUN_ASSIGN_OR_RETURN(const Tensor value, View(tensor), "parameter " + name);
    Parameter parameter;
    parameter.name = name;
    parameter.shape = tensor.sizes().vec();
    parameter.value = value;
    parameter.decays = parameter.shape.size() > 1;
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

// Copies the parameters and the buffers of `module` from rank `root` to all ranks, also parameters that require no
// gradients. They may have any type and any strides, which may differ among ranks. Collective.
//   Errors: kInvalidArgument: the names, shapes or types differ among ranks, or the roots differ or are not ranks. The
//           message, which is the same on all ranks, names the first difference. No value has changed, and the communicator
//           remains usable.
//           kInvalidArgument: a tensor is not in the memory of the host, not strided, or several of its elements share
//           memory, as after expand(). That aborts the communicator.
//           Others: those of Work::Wait. The values of ranks other than `root` are undefined.
inline Status BroadcastModule(Communicator comm, torch::nn::Module& module, int root = 0) {
  std::vector<StateTensor> state;
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors;  // with their elements in the order of indices
  const auto add = [&](const std::string& name, const at::Tensor& tensor) -> Status {
    if (!tensor.defined()) return OkStatus();
    if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided) {
      return InvalidArgumentError(name + " of type " + tensor.toString() +
                                  " is not a dense tensor of the host");
    }
    if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
      return InvalidArgumentError(name + ": several of its elements share memory: use clone()");
    }
    const at::Tensor elements = tensor.detach().contiguous();
    // As bytes, because some types have no DType.
    state.push_back({name + " (" + c10::toString(tensor.scalar_type()) + ")",
                     tensor.sizes().vec(),
                     {elements.data_ptr(), static_cast<int64_t>(elements.nbytes()), DType::kUInt8}});
    tensors.emplace_back(tensor, elements);
    return OkStatus();
  };
  for (const auto& [name, tensor] : internal::NamedParameters(module)) {
    DDPRUN_RETURN_IF_ERROR(internal::AbortUnlessOk(comm, add("parameter " + name, tensor)));
  }
  for (const auto& item : module.named_buffers()) {
    DDPRUN_RETURN_IF_ERROR(internal::AbortUnlessOk(comm, add("buffer " + item.key(), item.value())));
  }
  DDPRUN_RETURN_IF_ERROR(BroadcastState(comm, state, root));
  const at::NoGradGuard no_grad;
  for (auto& [tensor, elements] : tensors) {
    if (!tensor.is_alias_of(elements)) tensor.copy_(elements);
  }
  return OkStatus();
}

// Reduces the gradients of a module while backward computes others.
//   Gradients: between Begin() and the next Begin(), the grad() of each parameter is a view of memory that this object
//              owns. Do not replace it: call Begin() instead of zero_grad(). Afterwards, or if this object is destroyed,
//              the gradients are undefined tensors.
//   Threads:   one caller at a time; backward on the host runs in the calling thread.
//   Owns:      a reference to each parameter. The module may not replace its parameters.
class TorchDataParallel {
 public:
  // Collective. Compares the parameters of all ranks, and copies their values and those of the module's buffers from
  // rank 0.
  //   Errors: those of DataParallel::Create and BroadcastModule.
  static StatusOr<std::unique_ptr<TorchDataParallel>> Create(Communicator comm, torch::nn::Module& module,
                                                             const DataParallelOptions& options = {}) {
    StatusOr<std::vector<Parameter>> parameters = ParametersOf(module);
    DDPRUN_RETURN_IF_ERROR(internal::AbortUnlessOk(comm, parameters.status()));
    DDPRUN_ASSIGN_OR_RETURN(DataParallel dp, DataParallel::Create(comm, *std::move(parameters), options));
    DDPRUN_RETURN_IF_ERROR(BroadcastModule(comm, module, 0));
    return std::unique_ptr<TorchDataParallel>(new TorchDataParallel(std::move(comm), std::move(dp), module));
  }
  ~TorchDataParallel() {
    state_->ready = nullptr;  // the hooks remain, and do nothing
    for (at::Tensor& value : values_) value.mutable_grad() = at::Tensor();
  }
  TorchDataParallel(const TorchDataParallel&) = delete;
  TorchDataParallel& operator=(const TorchDataParallel&) = delete;

  // Starts a step, with all gradients zero. To accumulate the gradients of several backward passes, call
  // set_communicates(false) before all but the last.
  //   REQUIRES: Finish() was called for the previous step, and returned OK.
  void Begin() {
    state_->creates_graph = false;
    dp_.Begin();
    dp_.ZeroGradients();
    state_->communicates = true;
    state_->waits.assign(values_.size(), 0);
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < values_.size(); ++i) {
      const Tensor gradient = dp_.gradient(i);
      at::Tensor& grad = values_[i].mutable_grad();
      if (grad.defined() && grad.data_ptr() == gradient.data) continue;
      grad = torch::from_blob(gradient.data, values_[i].sizes(), values_[i].options().requires_grad(false));
    }
  }

  // Whether backward passes send gradients from now on. Begin() sets it. Only the last backward pass of a step may send;
  // Finish sends the gradients that only earlier passes have computed.
  void set_communicates(bool communicates) { state_->communicates = communicates; }

  // Waits until all gradients are reduced; then they are equal on all ranks. `options.optimizer` may update the
  // parameters; otherwise use an optimizer of LibTorch.
  //   Errors: those of DataParallel::Finish; kFailedPrecondition: a gradient or a parameter no longer has its
  //           memory, because the program replaced it, or called backward with create_graph. That aborts the
  //           communicator.
  Status Finish(const FinishOptions& options = {}) {
    if (state_->creates_graph) {
      const std::string what =
          "backward was called with create_graph, which replaces the memory of gradients";
      comm_.Abort(what);
      return FailedPreconditionError(what);
    }
    for (size_t i = 0; i < values_.size(); ++i) {
      const Parameter& parameter = dp_.parameters()[i];
      if (parameter.value.count == 0) continue;  // LibTorch gives tensors without elements no address
      const at::Tensor& grad = values_[i].grad();
      if (grad.defined() && grad.data_ptr() == dp_.gradient(i).data &&
          values_[i].data_ptr() == parameter.value.data) {
        continue;
      }
      const std::string what = "the memory of parameter " + parameter.name +
                               " or of its gradient was replaced: call Begin() instead of " +
                               "zero_grad(), and do not assign to grad() or data()";
      comm_.Abort(what);
      return FailedPreconditionError(what);
    }
    // The last pass did not use these parameters, but earlier ones did.
    for (size_t i = 0; i < values_.size(); ++i) {
      if (state_->waits[i] != 0) dp_.Ready(i);
    }
    return dp_.Finish(options);
  }

  // For norm(), unused() and timings().
  const DataParallel& data_parallel() const { return dp_; }

 private:
  // What the hooks of the parameters share with this object, and outlive it.
  struct State {
    DataParallel* ready = nullptr;  // null: the hooks do nothing
    bool communicates = true;
    bool creates_graph = false;  // a backward pass since the last Begin() did
    std::vector<char> waits;     // by parameter: has a gradient of this step that is not ready yet
  };
  // Runs after backward has added to the gradient of a parameter.
  class Hook : public torch::autograd::FunctionPostHook {
   public:
    Hook(std::shared_ptr<State> state, size_t index) : state_(std::move(state)), index_(index) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      if (state_->ready == nullptr) return outputs;
      if (at::GradMode::is_enabled()) {
        state_->creates_graph = true;  // Finish reports it
        return outputs;
      }
      state_->waits[index_] = state_->communicates ? 0 : 1;
      if (state_->communicates) state_->ready->Ready(index_);
      return outputs;
    }

   private:
    const std::shared_ptr<State> state_;
    const size_t index_;
  };

  TorchDataParallel(Communicator comm, DataParallel dp, torch::nn::Module& module)
      : comm_(std::move(comm)), dp_(std::move(dp)), state_(std::make_shared<State>()) {
    for (const auto& [name, value] : internal::NamedParameters(module)) {
      if (!value.requires_grad()) continue;
      // A parameter has its accumulator only as long as something refers to it.
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(value));
      accumulators_.back()->add_post_hook(std::make_unique<Hook>(state_, values_.size()));
      values_.push_back(value);
    }
    state_->waits.assign(values_.size(), 0);
    state_->ready = &dp_;
  }

  Communicator comm_;
  DataParallel dp_;
  const std::shared_ptr<State> state_;
  // A shared pointer of the C++ library or of LibTorch, depending on the version of LibTorch.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  std::vector<at::Tensor> values_;         // by parameter
  std::vector<Accumulator> accumulators_;  // by parameter
};

}  // namespace ddprun
