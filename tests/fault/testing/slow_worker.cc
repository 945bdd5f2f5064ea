// A worker whose steps are all-reduces of the SDK. Before each, it loads data for 10 ms and computes for 20 ms, or for 60 ms on the
// rank that the flag names.
//   usage: slow_worker --slow=RANK
#include <poll.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
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

void Pass(int ms) { poll(nullptr, 0, ms); }

Status Run(const std::string& flag) {
  DDPRUN_ASSIGN_OR_RETURN(Context context, Context::FromEnvironment());
  DDPRUN_ASSIGN_OR_RETURN(Communicator world, context.Connect());
  const bool slow = flag == "--slow=" + std::to_string(context.rank());
  std::vector<float> sum(1);
  for (int64_t step = 0;; ++step) {
    context.Report(step, Phase::kLoading);
    Pass(10);
    context.Report(step, Phase::kTraining);
    Pass(slow ? 60 : 20);
    DDPRUN_RETURN_IF_ERROR(world.AllReduce(ddprun::View(sum), ddprun::ReduceOp::kSum).Wait());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = Run(argc > 1 ? argv[1] : "");
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
