// As hello.cc, and a worker that is lost does not cost the others their memory: they go on with the step after the last one.
#include <ddprun/context.h>
#include <ddprun/data_parallel.h>
#include <ddprun/recover.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

namespace {

// What a worker has in its memory from the first round to the last.
struct Fit {
  std::vector<float> line = {0, 0};  // a, b
  std::vector<ddprun::Parameter> parameters = {{"line", {2}, ddprun::View(line), {}, true}};
  std::unique_ptr<ddprun::Optimizer> sgd;
  std::optional<ddprun::DataParallel> data_parallel;
  int64_t step = -1;  // that `line` and `sgd` contain; -1: none
};

// One round.
ddprun::Status Train(ddprun::Context& context, ddprun::Communicator world, Fit& fit) {
  ddprun::RecoverOptions recover;
  recover.step = &fit.step;
  recover.last = fit.data_parallel ? &*fit.data_parallel : nullptr;
  recover.parameters = fit.parameters;
  recover.optimizer = fit.sgd.get();
  DDPRUN_RETURN_IF_ERROR(ddprun::Recover(context, world, recover).status());
  fit.data_parallel.reset();
  if (fit.step < 0) {  // no rank has any state: load the newest snapshot on all ranks, or begin
    fit.line.assign(2, 0);
    fit.step = 0;
  }
  ddprun::DataParallelOptions options;
  options.atomic_steps = true;
  DDPRUN_ASSIGN_OR_RETURN(fit.data_parallel, ddprun::DataParallel::Create(world, fit.parameters, options));
  constexpr int kPoints = 100;
  while (fit.step < 500) {
    fit.data_parallel->Begin();
    fit.data_parallel->ZeroGradients();
    auto* gradient = static_cast<float*>(fit.data_parallel->gradient(0).data);
    for (int i = 0; i < kPoints; ++i) {
      const float x = static_cast<float>(i * world.size() + world.rank()) / (kPoints * world.size());
      const float error = fit.line[0] * x + fit.line[1] - (3 * x + 1);
      gradient[0] += 2 * error * x / kPoints;
      gradient[1] += 2 * error / kPoints;
    }
    fit.data_parallel->Ready(0);
    ddprun::FinishOptions finish;
    finish.optimizer = fit.sgd.get();
    finish.step.step = fit.step + 1;
    DDPRUN_RETURN_IF_ERROR(fit.data_parallel->Finish(finish));
    context.Report(++fit.step);  // directly after Finish, before any other operation
  }
  if (world.rank() == 0) {
    std::printf("%d workers: y = %.4f x + %.4f\n", world.size(), fit.line[0], fit.line[1]);
  }
  return ddprun::OkStatus();
}

ddprun::Status Run(ddprun::Context& context) {
  context.Survive();  // before Connect
  Fit fit;
  ddprun::SgdOptions options;
  options.learning_rate = 0.1;
  DDPRUN_ASSIGN_OR_RETURN(fit.sgd, ddprun::MakeSgd(fit.parameters, options));
  ddprun::StatusOr<ddprun::Communicator> world = context.Connect();
  while (true) {
    const ddprun::Status status = world.ok() ? Train(context, *world, fit) : world.status();
    if (status.ok() || !context.MayContinue(status)) return status;
    world = context.NextRound(status);
  }
}

}  // namespace

int main() {
  ddprun::StatusOr<ddprun::Context> context = ddprun::Context::FromEnvironment();
  const ddprun::Status status = context.ok() ? Run(*context) : context.status();
  if (!status.ok()) std::fprintf(stderr, "in_place: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
