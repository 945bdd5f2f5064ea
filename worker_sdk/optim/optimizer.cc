#include "worker_sdk/optim/optimizer.h"

#include <utility>

#include "base/check.h"
#include "worker_sdk/comm/device_text.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/param/broadcast.h"
#include "worker_sdk/param/facts.h"
#include "worker_sdk/param/parameters.h"

namespace ddprun {

Optimizer::Optimizer(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {}
Optimizer::~Optimizer() = default;
Status Optimizer::status() const { return OkStatus(); }

void Optimizer::Step(const OptimizerStep& step) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& p = parameters_[i];
    DDPRUN_CHECK(p.gradient.data != nullptr || p.value.count == 0,
                 "parameter " << p.name << " has no memory for its gradient");
    Update(i, {p.gradient.data, p.value.count, p.value.dtype, p.value.device}, step);
  }
}

Status CheckFloat32(std::string_view optimizer, const std::vector<Parameter>& parameters) {
  std::string fault = FaultOfDevices(parameters);
  if (fault.empty()) fault = FaultOf(parameters, parameters.empty() ? Device{} : parameters[0].value.device);
  if (!fault.empty()) return InvalidArgumentError(StrCat(optimizer, ": ", fault));
  for (const Parameter& p : parameters) {
    if (p.value.dtype == DType::kFloat32) continue;
    return InvalidArgumentError(StrCat(optimizer, ": parameter ", p.name, " is ", NameOf(p.value.dtype),
                                       ": only float32 is supported"));
  }
  return OkStatus();
}

ArrayOptimizer::ArrayOptimizer(std::vector<Parameter> parameters, std::unique_ptr<ArrayOps> ops,
                               std::vector<StateBuffer> state)
    : Optimizer(std::move(parameters)), state_(std::move(state)), ops_(std::move(ops)) {}

void ArrayOptimizer::Update(size_t i, ConstTensor gradient, const OptimizerStep& step) {
  DDPRUN_CHECK(i < parameters().size(), "there is no parameter " << i);
  DDPRUN_CHECK(step.step >= 1, "step < 1");
  const Parameter& p = parameters()[i];
  DDPRUN_CHECK(gradient.count == p.value.count && gradient.dtype == p.value.dtype,
               "parameter " << p.name << ": the gradient is " << gradient.count << " "
                            << NameOf(gradient.dtype) << " instead of " << p.value.count << " "
                            << NameOf(p.value.dtype));
  DDPRUN_CHECK(gradient.device == p.value.device, "parameter " << p.name << " is " << Describe(p.value.device)
                                                               << ", its gradient "
                                                               << Describe(gradient.device));
  status_.Update(UseStream(step.stream));
  if (!status_.ok()) return;
  status_.Update(Apply(*ops_, i, gradient, step));
  status_.Update(ops_->Order(step.stream, ops_->stream()));
}

Status ArrayOptimizer::UseStream(const Stream& stream) {
  if (stream.handle != nullptr && stream.handle == last_.handle && stream.device == last_.device)
    return OkStatus();
  const Status valid = ops_->CheckStream(stream);
  DDPRUN_CHECK(!IsInvalidArgument(valid), "OptimizerStep::stream: " << valid.message());
  DDPRUN_RETURN_IF_ERROR(valid);
  last_ = stream;
  return ops_->Order(ops_->stream(), stream);
}

std::vector<StateTensor> ArrayOptimizer::state() {
  std::vector<StateTensor> state;
  for (const StateBuffer& buffer : state_) buffer.AppendTo(&state);
  return state;
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
    facts.push_back({StrCat("the device of ", state[i].name), DeviceFact(state[i].values.device)});
    const std::string place = FaultOfPlace(state[i].values.device, comm.device());
    if (fault.empty() && !place.empty()) fault = StrCat(state[i].name, " is ", place);
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
