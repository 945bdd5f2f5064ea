// Fits y = a x + b on all workers of a round. Each worker has its own points; the mean of their gradients is the same on
// all workers, and so are a and b.
#include <ddprun/context.h>
#include <ddprun/data_parallel.h>

#include <cstdio>
#include <vector>

namespace {

ddprun::Status Train(ddprun::Context& context) {
  DDPRUN_ASSIGN_OR_RETURN(ddprun::Communicator world, context.Connect());
  std::vector<float> line = {0, 0};  // a, b
  const std::vector<ddprun::Parameter> parameters = {{"line", {2}, ddprun::View(line), {}, true}};
  ddprun::SgdOptions options;
  options.learning_rate = 0.1;
  DDPRUN_ASSIGN_OR_RETURN(auto sgd, ddprun::MakeSgd(parameters, options));
  DDPRUN_ASSIGN_OR_RETURN(auto data_parallel, ddprun::DataParallel::Create(world, parameters));
  constexpr int kPoints = 100;
  for (int64_t step = 1; step <= 500; ++step) {
    data_parallel.Begin();
    data_parallel.ZeroGradients();
    auto* gradient = static_cast<float*>(data_parallel.gradient(0).data);
    for (int i = 0; i < kPoints; ++i) {
      const float x = static_cast<float>(i * world.size() + world.rank()) / (kPoints * world.size());
      const float error = line[0] * x + line[1] - (3 * x + 1);
      gradient[0] += 2 * error * x / kPoints;
      gradient[1] += 2 * error / kPoints;
    }
    data_parallel.Ready(0);
    ddprun::FinishOptions finish;
    finish.optimizer = sgd.get();
    finish.step.step = step;
    DDPRUN_RETURN_IF_ERROR(data_parallel.Finish(finish));
    context.Report(step);
  }
  if (world.rank() == 0) std::printf("%d workers: y = %.4f x + %.4f\n", world.size(), line[0], line[1]);
  return ddprun::OkStatus();
}

}  // namespace

int main() {
  ddprun::StatusOr<ddprun::Context> context = ddprun::Context::FromEnvironment();
  const ddprun::Status status = context.ok() ? Train(*context) : context.status();
  if (!status.ok()) std::fprintf(stderr, "hello: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
