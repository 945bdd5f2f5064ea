// Modules that TorchDataParallel and BroadcastModule must handle, and errors.
// usage: modules frozen|tied|empty|invalid|buffers|different|shared|create_graph|accumulated
#include <ddprun/context.h>
#include <ddprun/torch.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <string>

namespace {

using ddprun::Communicator;
using ddprun::Status;
using ddprun::TorchDataParallel;

bool failed = false;

void Expect(bool condition, const std::string& what) {
  if (condition) return;
  failed = true;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
}

// The sum of `values` over all ranks.
double SumOf(Communicator world, const at::Tensor& values) {
  double sum = values.sum().item<double>();
  const Status status =
      world.AllReduce(ddprun::Tensor{&sum, 1, ddprun::DType::kFloat64}, ddprun::ReduceOp::kSum).Wait();
  Expect(status.ok(), status.ToString());
  return sum;
}

struct Module : torch::nn::Module {
  at::Tensor Add(const std::string& name, at::IntArrayRef shape, double value, bool trained = true) {
    return register_parameter(name, torch::full(shape, value), trained);
  }
};

void TestFrozenParametersAreCopied(Communicator world) {
  Module module;
  const at::Tensor trained = module.Add("trained", {2}, world.rank());
  const at::Tensor frozen = module.Add("frozen", {3}, world.rank() + 5, false);
  auto ddp = TorchDataParallel::Create(world, module);
  Expect(ddp.ok(), "frozen: " + ddp.status().ToString());
  Expect(SumOf(world, trained) == 0, "trained parameters are those of rank 0");
  Expect(SumOf(world, frozen) == 2 * 3 * 5, "frozen parameters are those of rank 0");

  Module teacher;
  const at::Tensor only = teacher.Add("only", {3}, world.rank() + 5, false);
  const Status status = ddprun::BroadcastModule(world, teacher, 1);
  Expect(status.ok(), "only frozen: " + status.ToString());
  Expect(SumOf(world, only) == 2 * 3 * 6, "a module without other parameters is that of rank 1");
}

// The gradient of a tied parameter is the sum over its uses, averaged over ranks.
void TestTiedParameters(Communicator world) {
  Module module;
  const at::Tensor tied = module.Add("first", {2}, 1);
  module.register_parameter("second", tied);
  auto ddp = TorchDataParallel::Create(world, module);
  Expect(ddp.ok(), "tied: " + ddp.status().ToString());
  if (!ddp.ok()) return;
  Expect((*ddp)->data_parallel().parameters().size() == 1, "a tied parameter is one parameter");
  for (int step = 1; step <= 3; ++step) {
    (*ddp)->Begin();
    (tied * (world.rank() + 1) + tied * 2).sum().backward();
    const Status status = (*ddp)->Finish();
    Expect(status.ok(), "tied: " + status.ToString());
    if (!status.ok()) return;
    Expect(tied.grad().eq(3.5).all().item<bool>(), "the gradient of a tied parameter");
  }
}

void TestEmptyParameters(Communicator world) {
  Module module;
  const at::Tensor values = module.Add("values", {2}, 1);
  const at::Tensor empty = module.Add("empty", {0, 3}, 1);
  auto ddp = TorchDataParallel::Create(world, module);
  Expect(ddp.ok(), "empty: " + ddp.status().ToString());
  if (!ddp.ok()) return;
  for (int step = 1; step <= 3; ++step) {
    (*ddp)->Begin();
    ((values * (world.rank() + 1)).sum() + empty.sum()).backward();
    const Status status = (*ddp)->Finish();
    Expect(status.ok(), "empty: " + status.ToString());
    if (!status.ok()) return;
    Expect(values.grad().eq(1.5).all().item<bool>(), "the gradient next to an empty parameter");
  }
}

// The other ranks do not wait.
void TestInvalidOnOneRank(Communicator world) {
  Module module;
  module.register_parameter("weight", world.rank() == 1 ? torch::ones({2, 3}).t() : torch::ones({3, 2}));
  ddprun::DataParallelOptions options;
  options.timeout = std::chrono::seconds(20);
  const Status status = TorchDataParallel::Create(world, module, options).status();
  Expect(status.message().find("weight is not contiguous") != std::string::npos,
         "invalid on one rank: " + status.ToString());
}

// Types without a DType, and strides that differ among ranks.
void TestBuffersOfAllTypesAndStrides(Communicator world) {
  Module module;
  std::map<std::string, at::Tensor> buffers;
  const at::Tensor values = torch::arange(6).view({2, 3});
  for (const auto type : {at::kChar, at::kShort, at::kByte, at::kBool, at::kInt, at::kLong, at::kHalf,
                          at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat}) {
    const at::Tensor own = world.rank() == 1 ? values : torch::zeros({2, 3}, at::kLong);
    const std::string name = c10::toString(type);
    buffers[name] = module.register_buffer(name, own.to(type));
    at::Tensor strided = torch::zeros({3, 2}, type).t();
    at::Tensor sliced = torch::zeros({2, 6}, type).slice(1, 0, 6, 2);
    buffers[name + "_strided"] =
        module.register_buffer(name + "_strided", world.rank() == 1 ? own.to(type) : strided);
    buffers[name + "_sliced"] =
        module.register_buffer(name + "_sliced", world.rank() == 1 ? strided.copy_(own) : sliced);
  }
  module.register_buffer("undefined", at::Tensor());
  module.register_buffer("empty", torch::zeros({0, 2}, at::kChar));
  const Status status = ddprun::BroadcastModule(world, module, 1);
  Expect(status.ok(), "buffers: " + status.ToString());
  for (const auto& [name, buffer] : buffers) {
    Expect(buffer.eq(values.to(buffer.scalar_type())).all().item<bool>(),
           "buffer " + name + " is that of rank 1");
  }
}

void TestDifferencesAreErrors(Communicator world) {
  const auto error = [&](const std::string& name, const at::Tensor& buffer, int root) {
    Module module;
    module.Add("frozen", {2}, 1, false);
    module.register_buffer(name, buffer);
    const Status status = ddprun::BroadcastModule(world, module, root);
    Expect(status.code() == ddprun::StatusCode::kInvalidArgument, "different: " + status.ToString());
    Expect(world.Barrier().Wait().ok(), "the communicator remains usable");
    return std::string(status.message());
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    Expect(message.find(part) != std::string::npos, "\"" + message + "\" does not contain: " + part);
  };
  const int64_t rank = world.rank();
  expect(error("b", torch::zeros({2}), 7), "rank 7 of 2 cannot be the root");
  expect(error("b", torch::zeros({2}), world.rank()), "the root is 0 on rank 0 and is 1 on rank 1");
  expect(error(rank == 0 ? "a" : "b", torch::zeros({2}), 0), "buffer a (Float) on rank 0");
  expect(error("b", torch::zeros({2 + rank}), 0),
         "the shape of buffer b (Float) is [2] on rank 0 and is [3]");
  expect(error("b", torch::zeros({2}, rank == 0 ? at::kShort : at::kHalf), 0), "buffer b (Short) on rank 0");
}

void TestSharedElements(Communicator world) {
  Module module;
  module.register_buffer("expanded", torch::zeros({1}).expand({3}));
  const Status status = ddprun::BroadcastModule(world, module, 0);
  Expect(status.message().find("buffer expanded: several of its elements share memory") != std::string::npos,
         "shared: " + status.ToString());
}

// "early" has a gradient only from the passes before the last one.
void TestGradientsOfEarlierPasses(Communicator world) {
  for (const bool unused_parameters : {false, true}) {
    Module module;
    const at::Tensor early = module.Add("early", {2}, 1), late = module.Add("late", {2}, 1);
    ddprun::DataParallelOptions options;
    options.unused_parameters = unused_parameters;
    auto ddp = TorchDataParallel::Create(world, module, options);
    Expect(ddp.ok(), "accumulated: " + ddp.status().ToString());
    if (!ddp.ok()) return;
    for (int step = 1; step <= 3; ++step) {
      (*ddp)->Begin();
      (*ddp)->set_communicates(false);
      (early * (world.rank() + 1) + late).sum().backward();
      (*ddp)->set_communicates(true);
      (late * 2).sum().backward();
      const Status status = (*ddp)->Finish();
      Expect(status.ok(), "accumulated: " + status.ToString());
      if (!status.ok()) return;
      Expect(early.grad().eq(1.5).all().item<bool>(), "the gradient of an earlier pass");
      Expect(late.grad().eq(3).all().item<bool>(), "the gradient of both passes");
    }
  }
}

void TestCreateGraph(Communicator world) {
  Module module;
  const at::Tensor weight = module.Add("weight", {2}, 1);
  auto ddp = TorchDataParallel::Create(world, module);
  Expect(ddp.ok(), "create_graph: " + ddp.status().ToString());
  if (!ddp.ok()) return;
  (weight * weight).sum().backward({}, true, true);  // Begin() sets the gradient
  // Gradients of gradients are possible with grad().
  (*ddp)->Begin();
  const auto slope = torch::autograd::grad({(weight * weight).sum()}, {weight}, {}, true, true)[0];
  (slope * slope).sum().backward();
  Status status = (*ddp)->Finish();
  Expect(status.ok(), "create_graph: " + status.ToString());
  Expect(weight.grad().eq(8).all().item<bool>(), "the gradient of a gradient");
  (*ddp)->Begin();
  (weight * weight).sum().backward({}, true, true);
  status = (*ddp)->Finish();
  Expect(status.message().find("create_graph") != std::string::npos, "create_graph: " + status.ToString());
}

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(1);
  ddprun::StatusOr<ddprun::Context> context = ddprun::Context::FromEnvironment();
  if (!context.ok()) return std::fprintf(stderr, "%s\n", context.status().ToString().c_str()), 1;
  ddprun::StatusOr<Communicator> world = context->Connect();
  if (!world.ok()) return std::fprintf(stderr, "%s\n", world.status().ToString().c_str()), 1;
  const std::map<std::string, void (*)(Communicator)> tests = {{"frozen", TestFrozenParametersAreCopied},
                                                               {"tied", TestTiedParameters},
                                                               {"empty", TestEmptyParameters},
                                                               {"invalid", TestInvalidOnOneRank},
                                                               {"buffers", TestBuffersOfAllTypesAndStrides},
                                                               {"different", TestDifferencesAreErrors},
                                                               {"shared", TestSharedElements},
                                                               {"accumulated", TestGradientsOfEarlierPasses},
                                                               {"create_graph", TestCreateGraph}};
  tests.at(argc == 2 ? argv[1] : "")(*world);
  return failed ? 1 : 0;
}
