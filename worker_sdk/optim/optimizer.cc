#include "worker_sdk/optim/optimizer.h"

#include <utility>

#include "base/check.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/param/facts.h"
#include "worker_sdk/param/parameters.h"

namespace ddprun {

Optimizer::Optimizer(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {}
Optimizer::~Optimizer() = default;

void Optimizer::Step(const OptimizerStep& step) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    DDPRUN_CHECK(p.gradient.data != nullptr || p.value.count == 0,
                 "parameter " << p.name << " has no memory for its gradient");
    Update(i, {p.gradient.data, p.value.count, p.value.dtype, p.value.device}, step);
  }
}

Status CheckFloat32(std::string_view optimizer, const std::vector<Parameter>& parameters) {
  if (const std::string fault = FaultOf(parameters); !fault.empty()) {
    return InvalidArgumentError(StrCat(optimizer, ": ", fault));
  }
  for (const Parameter& p : parameters) {
    if (p.value.dtype == DType::kFloat32) continue;
    return InvalidArgumentError(StrCat(optimizer, ": parameter ", p.name, " is ", NameOf(p.value.dtype),
                                       ": only float32 is supported"));
  }
  return OkStatus();
}

Float32Update Float32UpdateOf(const Optimizer& optimizer, size_t i, const ConstTensor& gradient,
                              const OptimizerStep& step) {
  DDPRUN_CHECK(i < optimizer.parameters().size(), "there is no parameter " << i);
  DDPRUN_CHECK(step.step >= 1, "step < 1");
  const Parameter& p = optimizer.parameters()[i];
  DDPRUN_CHECK(gradient.count == p.value.count && gradient.dtype == p.value.dtype,
               "parameter " << p.name << ": the gradient is " << gradient.count << " "
                            << NameOf(gradient.dtype) << " instead of " << p.value.count << " "
                            << NameOf(p.value.dtype));
  const auto count = static_cast<size_t>(p.value.count);
  return {{static_cast<float*>(p.value.data), count}, {static_cast<const float*>(gradient.data), count}};
}

namespace {

// `facts`: what must be equal on all ranks besides the state.
Status Broadcast(Communicator comm, std::vector<Fact> facts, const std::vector<StateTensor>& state,
                 int root) {
  std::string fault;
  if (root < 0 || root >= comm.size()) {
    fault = StrCat("rank ", root, " of ", comm.size(), " cannot be the root");
  }
  facts.insert(facts.begin(), {"the root", StrCat(root)});
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < state.size(); ++i) {
    facts.push_back({StrCat("state tensor ", i), state[i].name});
    facts.push_back({StrCat("the shape of ", state[i].name), ShapeText(state[i].shape)});
    facts.push_back({StrCat("the type of ", state[i].name),
                     StrCat(state[i].values.count, " ", NameOf(state[i].values.dtype))});
    tensors.push_back(state[i].values);
  }
  DDPRUN_RETURN_IF_ERROR(CompareFacts(comm, facts, fault));
  return BroadcastTensors(std::move(comm), tensors, root);
}

}  // namespace

Status BroadcastState(Communicator comm, const std::vector<StateTensor>& state, int root) {
  return WithContext(Broadcast(std::move(comm), {}, state, root), "broadcasting tensors");
}

Status BroadcastOptimizer(Communicator comm, Optimizer& optimizer, int root) {
  std::vector<Fact> facts = {{"the optimizer", std::string(optimizer.name())}};
  return WithContext(Broadcast(std::move(comm), std::move(facts), optimizer.state(), root),
                     "broadcasting the state of an optimizer");
}

}  // namespace ddprun
