// A training loop whose steps, all-reduces of the SDK, take from 0.05 s to 1 s, 1:20. Every 40th step is preceded by 5 s in which data is
// loaded, every 25th is followed by a snapshot of 2 s. Ends after the given number of seconds.
//   usage: varied_worker SECONDS
#include <poll.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/context.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"

namespace {

using ddprun::Communicator;
using ddprun::Context;
using ddprun::Phase;
using ddprun::Status;

constexpr int kShortestMs = 50;
constexpr int kRatio = 20;

void Work(int ms) { poll(nullptr, 0, ms); }

Status Run(double seconds) {
  DDPRUN_ASSIGN_OR_RETURN(Context context, Context::FromEnvironment());
  DDPRUN_ASSIGN_OR_RETURN(Communicator world, context.Connect());
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  // Each rank has lengths of its own, so that they wait for each other.
  std::minstd_rand random(static_cast<unsigned>(context.rank()) + 1);
  std::uniform_real_distribution<double> exponent(0, std::log(kRatio));
  std::vector<float> go_on(1);
  for (int64_t step = 1;; ++step) {
    if (step % 40 == 0) {
      context.Report(step - 1, Phase::kLoading);
      Work(5000);
      context.Report(step - 1, Phase::kTraining);
    }
    Work(static_cast<int>(kShortestMs * std::exp(exponent(random))));
    go_on[0] = context.rank() == 0 && std::chrono::steady_clock::now() < end ? 1.0F : 0.0F;
    DDPRUN_RETURN_IF_ERROR(world.AllReduce(ddprun::View(go_on), ddprun::ReduceOp::kSum).Wait());
    context.Report(step);
    if (step % 25 == 0) {
      context.Report(step, Phase::kSnapshotting);
      Work(2000);
      context.ReportSnapshot(step);
    }
    if (go_on[0] == 0.0F) {
      std::printf("rank %d: %lld steps\n", context.rank(), static_cast<long long>(step));
      return ddprun::OkStatus();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = Run(argc > 1 ? std::atof(argv[1]) : 60);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
