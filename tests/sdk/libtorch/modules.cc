// Modules that TorchDataParallel must handle: with frozen, tied and empty parameters, and one that is invalid on one rank.
// usage: modules frozen|tied|empty|invalid
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
    Expect(values.grad().eq(1.5).all().item<bool>(), "the gradient beside an empty parameter");
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
                                                               {"invalid", TestInvalidOnOneRank}};
  tests.at(argc == 2 ? argv[1] : "")(*world);
  return failed ? 1 : 0;
}
