#include "tests/fault/testing/round_watch.h"

#include <signal.h>

#include <memory>
#include <string>

#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"

namespace ddprun {
namespace {

// A process that looks like a worker of this round. It has said that it runs.
std::unique_ptr<Process> Worker(int round) {
  auto worker = std::make_unique<Process>(Args{"/bin/sh", "-c", "echo runs; exec sleep 1000"}, Stdio::kPipes,
                                          Environment{{"DDPRUN_ROUND", std::to_string(round)}});
  EXPECT_EQ(worker->AwaitOut("runs").size(), 1);
  return worker;
}

void End(Process& worker) {
  worker.Signal(SIGKILL);
  worker.Wait();
}

TEST(RoundWatchTest, OneRoundAfterTheOther) {
  RoundWatch watch;
  for (const int round : {0, 1}) {
    const auto one = Worker(round), other = Worker(round);
    watch.Await();
    End(*one);
    End(*other);
  }
  watch.ExpectOneRoundAtATime(2);
}

TEST(RoundWatchTest, SeesAnOverlap) {
  static RoundWatch* watch;
  watch = new RoundWatch;
  const auto old = Worker(0), next = Worker(1);
  watch->Await();
  EXPECT_NONFATAL_FAILURE(watch->ExpectOneRoundAtATime(2),
                          "of round 0 was alive together with a worker of round 1");
  delete watch;
  End(*old);
  End(*next);
}

}  // namespace
}  // namespace ddprun
