// Tests the exit codes of --exit-codes=scheduler: 75 means that the job may succeed if it is started again.
#include <signal.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

constexpr ProcessEnd kGood{.code = 0}, kBad{.code = 1}, kRequeue{.code = 75}, kKilled{.signal = SIGKILL};

struct Ending {
  std::string name;
  Args worker = {};   // flags of the worker
  Args options = {};  // of the agents
  std::function<void(HostJob&, Gate&)> cause = {};
  ProcessEnd first = {};   // of the agent that hosts the coordinator
  ProcessEnd second = {};  // of the other agent
};

void PrintTo(const Ending& ending, std::ostream* out) { *out << ending.name; }

void Command(HostJob& job, const Args& args) {
  const auto control = job.Control(1, args);
  EXPECT_EQ(control->Wait(), kGood) << control->err();
}

// Waits until the first node has started a round alone, then lets its workers exit.
void EndTheFirstAlone(HostJob& job, Gate& gate) {
  job.AwaitWorld(0, 1);
  gate.Open();
}

const std::vector<Ending>& Endings() {
  static const auto& endings = *new std::vector<Ending>{
      {.name = "Success",
       .cause = [](HostJob&, Gate& gate) { gate.Open(); },
       .first = kGood,
       .second = kGood},
      {.name = "WorkersFail",
       .worker = {"--fail-in-round=0"},
       .cause = [](HostJob&, Gate& gate) { gate.Open(); },
       .first = kBad,
       .second = kBad},
      {.name = "Stopped",
       .cause = [](HostJob& job, Gate&) { Command(job, {"stop"}); },
       .first = kBad,
       .second = kBad},
      {.name = "Drained",
       .cause =
           [](HostJob& job, Gate& gate) {
             Command(job, {"drain", "node1"});
             EndTheFirstAlone(job, gate);
           },
       .first = kGood,
       .second = kGood},
      {.name = "Sigterm",
       .cause =
           [](HostJob& job, Gate& gate) {
             job.agent(1).Signal(SIGTERM);
             EndTheFirstAlone(job, gate);
           },
       .first = kGood,
       .second = kRequeue},
      {.name = "Sigint",
       .cause =
           [](HostJob& job, Gate& gate) {
             job.agent(1).Signal(SIGINT);
             EndTheFirstAlone(job, gate);
           },
       .first = kGood,
       .second = kBad},
      {.name = "WardenKilled",
       .cause =
           [](HostJob& job, Gate& gate) {
             job.AwaitPrinted(1, "ready ");  // a running worker proves that the warden runs
             kill(job.hosts().Find(1, "ddp-warden").at(0), SIGKILL);
             EndTheFirstAlone(job, gate);
           },
       .first = kGood,
       .second = kRequeue},
      {.name = "CoordinatorTerminated",
       .options = {"--quorum=none"},
       .cause = [](HostJob& job, Gate&) { job.agent(0).Signal(SIGTERM); },
       .first = kRequeue,
       .second = kRequeue},
      {.name = "CoordinatorKilled",
       .cause = [](HostJob& job, Gate&) { job.agent(0).Signal(SIGKILL); },
       .first = kKilled,
       .second = kRequeue},
  };
  return endings;
}

class ExitCodeTest : public HostFaultTest, public testing::WithParamInterface<Ending> {};

TEST_P(ExitCodeTest, ShowsWhetherARestartMaySucceed) {
  Gate gate;
  HostJob job(2, Args{"--nnodes=1:2", "--exit-codes=scheduler"} + GetParam().options,
              Args{WorkerPath(), gate.flag()} + GetParam().worker);
  for (const int host : {0, 1}) job.Start(host);
  for (const int host : {0, 1}) job.AwaitWorld(host, 2);
  FaultNow();
  GetParam().cause(job, gate);
  job.ExpectEnd(0, GetParam().first);
  job.ExpectEnd(1, GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(All, ExitCodeTest, testing::ValuesIn(Endings()),
                         [](const auto& info) { return info.param.name; });

TEST_F(HostFaultTest, TheExitCodeForTooFewNodesSuggestsARestart) {
  HostJob job(1, {"--nnodes=2", "--exit-codes=scheduler", "--rdzv-conf=join_timeout=1"}, {WorkerPath()});
  FaultNow();
  job.Start(0);
  job.ExpectEnd(0, kRequeue);
}

}  // namespace
}  // namespace ddprun
