// Fits y = a x + b on all workers of a round. Each worker has its own points; the mean of their gradients is the same on
// all workers, and so are a and b.
#include <ddprun/communicator.h>
#include <ddprun/context.h>

#include <cstdio>
#include <vector>

namespace {

ddprun::Status Train(ddprun::Context& context) {
  DDPRUN_ASSIGN_OR_RETURN(ddprun::Communicator world, context.Connect());
  std::vector<double> parameters = {0, 0};  // a, b
  constexpr int kPoints = 100;
  for (int64_t step = 1; step <= 500; ++step) {
    std::vector<double> gradients = {0, 0};
    for (int i = 0; i < kPoints; ++i) {
      const double x = static_cast<double>(i * world.size() + world.rank()) / (kPoints * world.size());
      const double error = parameters[0] * x + parameters[1] - (3 * x + 1);
      gradients[0] += 2 * error * x / kPoints;
      gradients[1] += 2 * error / kPoints;
    }
    DDPRUN_RETURN_IF_ERROR(world.AllReduce(ddprun::View(gradients), ddprun::ReduceOp::kMean).Wait());
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i] -= 0.5 * gradients[i];
    context.Report(step);
  }
  if (world.rank() == 0) {
    std::printf("%d workers: y = %.4f x + %.4f\n", world.size(), parameters[0], parameters[1]);
  }
  return ddprun::OkStatus();
}

}  // namespace

int main() {
  ddprun::StatusOr<ddprun::Context> context = ddprun::Context::FromEnvironment();
  const ddprun::Status status = context.ok() ? Train(*context) : context.status();
  if (!status.ok()) std::fprintf(stderr, "hello: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
