// A worker that survives its rounds, with 1,000,000 parameters and AdamW. `survivor FIFO` writes "RANK PID MONOTONIC_NS\n" to
// FIFO when the first step of each round is done: all ranks have the same state, and an all-reduce of all gradients has
// finished. With DDPRUN_BENCH_RESTART=1 it does not survive, and begins with new parameters in each round.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "ddprun/context.h"
#include "ddprun/data_parallel.h"
#include "ddprun/optim.h"
#include "ddprun/recover.h"
#include "ddprun/status.h"

namespace {

using namespace ddprun;

struct State {
  std::vector<float> values = std::vector<float>(1'000'000);
  std::vector<Parameter> parameters = {{"values", {1'000'000}, View(values), {}, true}};
  std::unique_ptr<Optimizer> adamw;
  std::optional<DataParallel> data_parallel;
  int64_t step = -1;
};

// One write of less than PIPE_BUF bytes, so that lines of different workers are not interleaved.
bool Stamp(int fifo, int rank) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  char line[96];
  const int size = std::snprintf(line, sizeof(line), "%d %d %lld\n", rank, getpid(),
                                 static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  return write(fifo, line, size) == size;
}

// One round; ends with an error when the round does, because nothing else ends it.
Status Train(Context& context, Communicator world, State& state, int fifo) {
  DDPRUN_RETURN_IF_ERROR(Recover(context, world,
                                 {.step = &state.step,
                                  .last = state.data_parallel ? &*state.data_parallel : nullptr,
                                  .parameters = state.parameters,
                                  .optimizer = state.adamw.get()})
                             .status());
  state.data_parallel.reset();
  if (state.step < 0) state.step = 0;
  DataParallelOptions options;
  options.atomic_steps = true;
  DDPRUN_ASSIGN_OR_RETURN(state.data_parallel, DataParallel::Create(world, state.parameters, options));
  for (bool first = true;; first = false) {
    state.data_parallel->Begin();
    state.data_parallel->ZeroGradients();
    state.data_parallel->Ready(0);
    FinishOptions finish;
    finish.optimizer = state.adamw.get();
    finish.step.step = state.step + 1;
    DDPRUN_RETURN_IF_ERROR(state.data_parallel->Finish(finish));
    context.Report(++state.step);
    if (first && !Stamp(fifo, world.rank())) return InternalError("cannot write to the FIFO");
  }
}

Status Run(Context& context, int fifo) {
  if (std::getenv("DDPRUN_BENCH_RESTART") == nullptr) context.Survive();
  State state;
  DDPRUN_ASSIGN_OR_RETURN(state.adamw, MakeAdamW(state.parameters));
  StatusOr<Communicator> world = context.Connect();
  while (true) {
    const Status status = world.ok() ? Train(context, *world, state, fifo) : world.status();
    if (!context.MayContinue(status)) return status;
    world = context.NextRound(status);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int fifo = argc == 2 ? open(argv[1], O_WRONLY | O_CLOEXEC) : -1;
  if (fifo < 0) {
    std::fprintf(stderr, "usage: survivor FIFO\n");
    return 2;
  }
  StatusOr<Context> context = Context::FromEnvironment();
  const Status status = context.ok() ? Run(*context, fifo) : context.status();
  std::fprintf(stderr, "survivor: %s\n", status.ToString().c_str());
  return 1;
}
