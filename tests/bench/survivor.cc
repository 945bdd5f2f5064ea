// A worker that survives its rounds, with 1,000,000 parameters and AdamW. `survivor [--device=cuda] FIFO` writes
// "RANK PID MONOTONIC_NS\n" to FIFO when the first step of each round is done: all ranks have the same state, and an all-reduce of
// all gradients has finished. With DDPRUN_BENCH_RESTART=1 it does not survive, and begins with new parameters in each round.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ddprun/context.h"
#include "ddprun/data_parallel.h"
#include "ddprun/optim.h"
#include "ddprun/recover.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/device/cuda/memory.h"
#include "worker_sdk/device/cuda/stream.h"

namespace {

using namespace ddprun;

constexpr int64_t kNumParameters = 1'000'000;

// The memory of the parameters, of the host or of a GPU.
struct Memory {
  std::vector<float> on_host;
  DeviceMemory on_gpu;
  std::optional<CudaStream> cuda_stream;
  Tensor values;
  Stream stream;
};

Memory OnHost() {
  Memory memory;
  memory.on_host.resize(kNumParameters);
  memory.values = View(memory.on_host);
  return memory;
}

StatusOr<Memory> OnGpu(int local_rank) {
  constexpr int64_t kNumBytes = kNumParameters * int64_t{sizeof(float)};
  DDPRUN_ASSIGN_OR_RETURN(const NcclDevice gpu, OpenNcclDevice({DeviceType::kCuda, -1}, local_rank));
  Memory memory;
  DDPRUN_ASSIGN_OR_RETURN(memory.on_gpu, DeviceMemory::Allocate(gpu.context, kNumBytes));
  DDPRUN_ASSIGN_OR_RETURN(memory.cuda_stream, CudaStream::Create(gpu.context));
  const Device device{DeviceType::kCuda, gpu.context->index()};
  memory.values = {memory.on_gpu.data(), kNumParameters, DType::kFloat32, device};
  memory.stream = {device, memory.cuda_stream->get()};
  DDPRUN_RETURN_IF_ERROR(
      FillBytes(*gpu.context, memory.values.data, 0, kNumBytes, memory.cuda_stream->get()));
  return memory;
}

struct State {
  explicit State(Memory where) : memory(std::move(where)) {}

  Memory memory;
  std::vector<Parameter> parameters = {{"values", {kNumParameters}, memory.values, {}, true}};
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
    state.data_parallel->ZeroGradients(state.memory.stream);
    state.data_parallel->Ready(0, state.memory.stream);
    FinishOptions finish;
    finish.optimizer = state.adamw.get();
    finish.step.step = state.step + 1;
    finish.stream = state.memory.stream;
    DDPRUN_RETURN_IF_ERROR(state.data_parallel->Finish(finish));
    if (const auto& stream = state.memory.cuda_stream) {
      DDPRUN_RETURN_IF_ERROR(stream->Await(DeadlineAfter(seconds(30)), "the step"));
    }
    context.Report(++state.step);
    if (first && !Stamp(fifo, world.rank())) return InternalError("cannot write to the FIFO");
  }
}

Status Run(Context& context, const ConnectOptions& connect, int fifo) {
  if (std::getenv("DDPRUN_BENCH_RESTART") == nullptr) context.Survive();
  const bool on_gpu = connect.device.type == DeviceType::kCuda;
  DDPRUN_ASSIGN_OR_RETURN(Memory memory, on_gpu ? OnGpu(context.local_rank()) : StatusOr<Memory>(OnHost()));
  State state(std::move(memory));
  DDPRUN_ASSIGN_OR_RETURN(state.adamw, MakeAdamW(state.parameters));
  StatusOr<Communicator> world = context.Connect(connect);
  while (true) {
    const Status status = world.ok() ? Train(context, *world, state, fifo) : world.status();
    if (!context.MayContinue(status)) return status;
    world = context.NextRound(status, connect);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ConnectOptions connect;
  if (argc == 3 && std::strcmp(argv[1], "--device=cuda") == 0) connect.device = {DeviceType::kCuda, -1};
  const bool valid = argc == 2 || connect.device.type == DeviceType::kCuda;
  const int fifo = valid ? open(argv[argc - 1], O_WRONLY | O_CLOEXEC) : -1;
  if (fifo < 0) {
    std::fprintf(stderr, "usage: survivor [--device=cuda] FIFO\n");
    return 2;
  }
  StatusOr<Context> context = Context::FromEnvironment();
  const Status status = context.ok() ? Run(*context, connect, fifo) : context.status();
  std::fprintf(stderr, "survivor: %s\n", status.ToString().c_str());
  return 1;
}
