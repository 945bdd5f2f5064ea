#include "examples/train/gpu/gpu_replica.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "examples/train/gpu/cublas.h"
#include "examples/train/gpu/gpu_gpt.h"
#include "examples/train/gpu/gpu_tree_sum.h"
#include "examples/train/make_optimizer.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/device/cuda/driver.h"
#include "worker_sdk/optim/optimizer_state.h"

namespace ddprun::train {
namespace {

// For a copy of the parameters or of the optimizer's state.
constexpr Duration kCopyLimit = seconds(60);

int64_t BytesOf(const Tensor& tensor) { return tensor.count * SizeOf(tensor.dtype); }

class GpuReplica final : public Replica {
 public:
  static StatusOr<std::unique_ptr<Replica>> Make(const Options& options, const ReplicaShape& shape,
                                                 int index) {
    DDPRUN_ASSIGN_OR_RETURN(const CudaDriver* const driver, OpenCudaDriver());
    DDPRUN_ASSIGN_OR_RETURN(const CublasLibrary* const cublas, OpenCublas());
    DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<const CudaContext> context, CudaContext::Open(driver, index));
    DDPRUN_ASSIGN_OR_RETURN(
        std::unique_ptr<GpuGpt> gpt,
        GpuGpt::Create(context, cublas, {options.model, shape.max_batch, shape.max_sequences}));
    const auto num_elems = static_cast<int64_t>(NumParameters(gpt->tensors()));
    const int64_t passes = (shape.max_sequences + shape.max_batch - 1) / shape.max_batch;
    DDPRUN_ASSIGN_OR_RETURN(GpuTreeSum sum, GpuTreeSum::Create(context, &gpt->kernels(), num_elems, passes));
    DDPRUN_ASSIGN_OR_RETURN(PinnedMemory host,
                            PinnedMemory::Allocate(context, num_elems * int64_t{sizeof(float)}));
    const Device device{DeviceType::kCuda, context->index()};
    DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer,
                            MakeOptimizer(options, ParametersAt(gpt->parameters(), device, gpt->tensors())));
    std::unique_ptr<GpuReplica> replica(new GpuReplica(std::move(context), std::move(gpt), std::move(sum),
                                                       std::move(host), std::move(optimizer)));
    DDPRUN_RETURN_IF_ERROR(replica->AllocateHostState());
    return std::unique_ptr<Replica>(std::move(replica));
  }

  const std::vector<TensorSpec>& tensors() const override { return gpt_->tensors(); }
  Device device() const override { return {DeviceType::kCuda, context_->index()}; }
  Stream stream() const override { return {device(), gpt_->stream()}; }
  std::string_view kind() const override { return "cuda"; }
  Optimizer& optimizer() override { return *optimizer_; }

  void BeginStep() override { grad_sum_.Begin(); }

  Status Forward(std::span<const std::span<const uint8_t>> batch, float scale) override {
    return gpt_->Forward(batch, scale);
  }

  Status Backward(FunctionRef<float*(size_t tensor)> grad, FunctionRef<void(size_t tensor)> ready,
                  bool is_last) override {
    Status summed;
    DDPRUN_RETURN_IF_ERROR(gpt_->Backward(grad, [&](size_t tensor) {
      const auto first = static_cast<int64_t>(tensors()[tensor].offset);
      const auto count = static_cast<int64_t>(tensors()[tensor].num_elems);
      if (!is_last)
        return summed.Update(grad_sum_.Add(grad(tensor), first, count, *context_, gpt_->stream()));
      summed.Update(grad_sum_.Finish(grad(tensor), first, count));
      ready(tensor);
    }));
    if (!is_last) grad_sum_.EndTerm();
    return summed;
  }

  StatusOr<std::span<const double>> Losses() override { return gpt_->Losses(); }

  std::span<float> host_parameters() override {
    return {static_cast<float*>(host_.data()), NumParameters(tensors())};
  }

  Status ToHost() override {
    DDPRUN_RETURN_IF_ERROR(
        CopyToHost(*context_, host_.data(), gpt_->parameters(), host_.num_bytes(), gpt_->stream()));
    for (HostState& state : state_) {
      DDPRUN_RETURN_IF_ERROR(CopyToHost(*context_, state.memory.data(), state.on_gpu.data,
                                        BytesOf(state.on_gpu), gpt_->stream()));
    }
    return Await("the copy of the parameters to the host");
  }

  Status ToDevice() override {
    DDPRUN_RETURN_IF_ERROR(
        CopyToDevice(*context_, gpt_->parameters(), host_.data(), host_.num_bytes(), gpt_->stream()));
    for (HostState& state : state_) {
      DDPRUN_RETURN_IF_ERROR(CopyToDevice(*context_, state.on_gpu.data, state.memory.data(),
                                          BytesOf(state.on_gpu), gpt_->stream()));
    }
    return Await("the copy of the parameters to the GPU");
  }

  void AddOptimizerStateTo(Snapshot* snapshot) override { AddState(HostStateTensors(), snapshot); }
  void ClearOptimizerState() override {
    for (HostState& state : state_) {
      std::memset(state.memory.data(), 0, static_cast<size_t>(state.memory.num_bytes()));
    }
  }
  Status LoadOptimizerStateFrom(const Snapshot& snapshot) override {
    return LoadState(snapshot, optimizer_->name(), HostStateTensors());
  }

 private:
  // The host's copy of a tensor of the optimizer's state.
  struct HostState {
    std::string name;
    std::vector<int64_t> shape;
    Tensor on_gpu;
    PinnedMemory memory;
  };

  GpuReplica(std::shared_ptr<const CudaContext> context, std::unique_ptr<GpuGpt> gpt, GpuTreeSum grad_sum,
             PinnedMemory host, std::unique_ptr<Optimizer> optimizer)
      : context_(std::move(context)),
        grad_sum_(std::move(grad_sum)),
        host_(std::move(host)),
        gpt_(std::move(gpt)),
        optimizer_(std::move(optimizer)) {}

  // Zero, as the optimizer's state is before the first step.
  Status AllocateHostState() {
    for (StateTensor& tensor : optimizer_->state()) {
      DDPRUN_ASSIGN_OR_RETURN(PinnedMemory memory, PinnedMemory::Allocate(context_, BytesOf(tensor.values)));
      std::memset(memory.data(), 0, static_cast<size_t>(memory.num_bytes()));
      state_.push_back({std::move(tensor.name), std::move(tensor.shape), tensor.values, std::move(memory)});
    }
    return OkStatus();
  }

  [[nodiscard]] std::vector<StateTensor> HostStateTensors() const {
    std::vector<StateTensor> tensors;
    for (const HostState& state : state_) {
      tensors.push_back(
          {state.name, state.shape, {state.memory.data(), state.on_gpu.count, state.on_gpu.dtype}});
    }
    return tensors;
  }

  [[nodiscard]] Status Await(std::string_view what) const {
    return gpt_->Await(DeadlineAfter(kCopyLimit), what);
  }

  // The model is destroyed before the memory that its work uses, and after the optimizer, which borrows its parameters.
  const std::shared_ptr<const CudaContext> context_;
  GpuTreeSum grad_sum_;  // over passes
  const PinnedMemory host_;
  std::vector<HostState> state_;
  const std::unique_ptr<GpuGpt> gpt_;
  const std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

StatusOr<std::unique_ptr<Replica>> MakeGpuReplica(const Options& options, const ReplicaShape& shape,
                                                  int index) {
  return GpuReplica::Make(options, shape, index);
}

}  // namespace ddprun::train
