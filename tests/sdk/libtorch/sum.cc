// Adds a LibTorch tensor over all workers: the worker library and LibTorch in one process.
#include <ATen/ATen.h>
#include <ddprun/context.h>

#include <cstdio>

int main() {
  ddprun::StatusOr<ddprun::Context> context = ddprun::Context::FromEnvironment();
  if (!context.ok()) return std::fprintf(stderr, "%s\n", context.status().ToString().c_str()), 1;
  ddprun::StatusOr<ddprun::Communicator> world = context->Connect();
  if (!world.ok()) return std::fprintf(stderr, "%s\n", world.status().ToString().c_str()), 1;

  // A matrix product and a reference to a tensor's memory: both libraries run code of their own.
  at::Tensor tensor = at::matmul(at::ones({64, 64}), at::eye(64)) * (world->rank() + 1);
  const ddprun::Tensor view{tensor.data_ptr<float>(), tensor.numel(), ddprun::DType::kFloat32};
  const ddprun::Status status = world->AllReduce(view, ddprun::ReduceOp::kSum).Wait();
  if (!status.ok()) return std::fprintf(stderr, "%s\n", status.ToString().c_str()), 1;
  try {
    at::matmul(at::ones({2, 3}),
               at::ones({2, 3}));  // LibTorch throws and catches in a process that has libddprun
  } catch (const c10::Error&) {
    if (world->rank() == 0) std::printf("sum %.0f\n", tensor.sum().item<double>());
  }
  return 0;
}
