// A worker that survives its rounds. Local rank 2 counts three steps too many when it recovers.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "ddprun/context.h"
#include "ddprun/data_parallel.h"
#include "ddprun/recover.h"

namespace {

using ddprun::Communicator;
using ddprun::Context;
using ddprun::DataParallel;
using ddprun::Status;
using ddprun::StatusOr;

constexpr int64_t kStepsBeforeTheKill = 20;

struct State {
  std::vector<float> weights = std::vector<float>(8);
  std::vector<ddprun::Parameter> parameters = {{"weights", {8}, ddprun::View(weights), {}, true}};
  std::unique_ptr<ddprun::Optimizer> sgd;
  std::optional<DataParallel> data_parallel;
  int64_t step = -1;
};

Status Train(Context& context, Communicator world, State& state) {
  ddprun::RecoverOptions recover;
  recover.step = &state.step;
  recover.last = state.data_parallel ? &*state.data_parallel : nullptr;
  recover.parameters = state.parameters;
  recover.optimizer = state.sgd.get();
  DDPRUN_RETURN_IF_ERROR(ddprun::Recover(context, world, recover).status());
  state.data_parallel.reset();
  if (state.step < 0) state.step = 0;
  ddprun::DataParallelOptions options;
  options.atomic_steps = true;
  DDPRUN_ASSIGN_OR_RETURN(state.data_parallel, DataParallel::Create(world, state.parameters, options));
  while (true) {
    state.data_parallel->Begin();
    state.data_parallel->ZeroGradients();
    state.data_parallel->Ready(0);
    ddprun::FinishOptions finish;
    finish.optimizer = state.sgd.get();
    finish.step.step = state.step + 1;
    DDPRUN_RETURN_IF_ERROR(state.data_parallel->Finish(finish));
    context.Report(++state.step);
    if (state.step == kStepsBeforeTheKill) {
      std::printf("pid of local rank %d: %d\n", context.local_rank(), static_cast<int>(getpid()));
      std::fflush(stdout);
    }
  }
}

Status Run(Context& context) {
  context.Survive();
  State state;
  DDPRUN_ASSIGN_OR_RETURN(state.sgd, ddprun::MakeSgd(state.parameters, {}));
  StatusOr<Communicator> world = context.Connect();
  while (true) {
    const Status status = world.ok() ? Train(context, *world, state) : world.status();
    if (!context.MayContinue(status)) return status;
    world = context.NextRound(status);
    if (context.local_rank() == 2) state.step += 3;
  }
}

}  // namespace

int main() {
  StatusOr<Context> context = Context::FromEnvironment();
  const Status status = context.ok() ? Run(*context) : context.status();
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
