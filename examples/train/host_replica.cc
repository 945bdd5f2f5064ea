#include <cstring>
#include <utility>

#include "examples/train/make_optimizer.h"
#include "examples/train/model/model.h"
#include "examples/train/model/tree_sum.h"
#include "examples/train/replica.h"
#include "worker_sdk/optim/optimizer_state.h"

namespace ddprun::train {
namespace {

class HostReplica final : public Replica {
 public:
  HostReplica(const Options& options, const ReplicaShape& shape)
      : model_(options.model, shape.max_batch, *LayersFor<float>(options.cpu)),
        kind_(LayersFor<float>(options.cpu)->cpu()),
        optimizer_(
            MakeOptimizer(options, ParametersAt(model_.parameters().data(), Device{}, model_.tensors()))
                .value()),
        grad_sum_(model_.parameters().size()) {}

  const std::vector<TensorSpec>& tensors() const override { return model_.tensors(); }
  Device device() const override { return {}; }
  Stream stream() const override { return {}; }
  std::string_view kind() const override { return kind_; }
  Optimizer& optimizer() override { return *optimizer_; }

  void BeginStep() override {
    losses_.clear();
    grad_sum_.Begin();
  }

  Status Forward(std::span<const std::span<const uint8_t>> batch, float scale) override {
    losses_.resize(losses_.size() + batch.size());
    model_.Forward(batch, scale, std::span(losses_).last(batch.size()));
    return OkStatus();
  }

  Status Backward(FunctionRef<float*(size_t tensor)> grad, FunctionRef<void(size_t tensor)> ready,
                  bool is_last) override {
    model_.Backward(grad, [&](size_t tensor) {
      const TensorSpec& spec = tensors()[tensor];
      const std::span<float> part(grad(tensor), spec.num_elems);
      if (!is_last) return grad_sum_.Add(part, spec.offset);
      grad_sum_.Finish(part, spec.offset);
      ready(tensor);
    });
    if (!is_last) grad_sum_.EndTerm();
    return OkStatus();
  }

  StatusOr<std::span<const double>> Losses() override { return std::span<const double>(losses_); }

  std::span<float> host_parameters() override { return model_.parameters(); }
  Status ToHost() override { return OkStatus(); }
  Status ToDevice() override { return OkStatus(); }
  void AddOptimizerStateTo(Snapshot* snapshot) override { AddOptimizerState(*optimizer_, snapshot); }
  void ClearOptimizerState() override {
    for (const StateTensor& tensor : optimizer_->state()) {
      std::memset(tensor.values.data, 0,
                  static_cast<size_t>(tensor.values.count * SizeOf(tensor.values.dtype)));
    }
  }
  Status LoadOptimizerStateFrom(const Snapshot& snapshot) override {
    return LoadOptimizerState(snapshot, optimizer_.get());
  }

 private:
  Gpt<float> model_;
  const std::string_view kind_;
  const std::unique_ptr<Optimizer> optimizer_;  // borrows the parameters
  TreeSum<float> grad_sum_;                     // over passes
  std::vector<double> losses_;
};

}  // namespace

std::unique_ptr<Replica> MakeHostReplica(const Options& options, const ReplicaShape& shape) {
  return std::make_unique<HostReplica>(options, shape);
}

}  // namespace ddprun::train
