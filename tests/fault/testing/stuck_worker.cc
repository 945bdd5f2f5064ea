// A worker whose steps are all-reduces of the SDK. Rank 1 gets stuck in step 200, after it has printed "stuck", in the way that the flag
// names:
//   --loop       in a loop without an end
//   --skip       skips the all-reduce, and waits for a message that rank 0 does not send
//   --deadlock   waits for a mutex whose owner never releases it
//   --open=FILE  opens a file of a file system that does not answer
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/context.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"

namespace {

using ddprun::Communicator;
using ddprun::Context;
using ddprun::Status;
using ddprun::StatusOr;

constexpr int64_t kStuckStep = 200;

[[noreturn]] void Loop() {
  volatile bool forever = true;
  while (forever) {
  }
  _exit(5);
}

[[noreturn]] void Deadlock() {
  static std::mutex mu;
  static std::mutex taken;
  taken.lock();
  std::thread([] {
    const std::lock_guard lock(mu);
    taken.unlock();
    for (;;) pause();
  }).detach();
  taken.lock();
  mu.lock();
  _exit(5);
}

Status GetStuck(const std::string& flag, Communicator& world) {
  std::puts("stuck");
  std::fflush(stdout);
  if (flag == "--loop") Loop();
  if (flag == "--deadlock") Deadlock();
  if (flag.starts_with("--open=")) {
    open(flag.substr(sizeof("--open=") - 1).c_str(), O_RDONLY | O_CLOEXEC);
    return ddprun::InternalError("the file was opened");
  }
  std::vector<float> message(1);
  return world.Receive(ddprun::View(message), 0).Wait();
}

Status Run(const std::string& flag) {
  DDPRUN_ASSIGN_OR_RETURN(Context context, Context::FromEnvironment());
  DDPRUN_ASSIGN_OR_RETURN(Communicator world, context.Connect());
  std::vector<float> sum(1);
  for (int64_t step = 1;; ++step) {
    poll(nullptr, 0, /*ms=*/20);
    if (step == kStuckStep && context.rank() == 1) return GetStuck(flag, world);
    DDPRUN_RETURN_IF_ERROR(world.AllReduce(ddprun::View(sum), ddprun::ReduceOp::kSum).Wait());
    context.Report(step);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = Run(argc > 1 ? argv[1] : "");
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
