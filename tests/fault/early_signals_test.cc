// Tests signals that arrive before any worker runs: the agent exits within 2 s with code 1 and leaves nothing
// behind.
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/fake_peer.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::AnyOf;
using testing::Eq;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Optional;
using testing::SizeIs;

const ProcessEnd kFailure{.code = 1};
constexpr Duration kExitLimit = seconds(2);

void ExpectPromptExit(Process& agent, int signo, const std::string& said) {
  const Traces traces = TracesOf(agent.mark());
  ASSERT_GE(traces.Count("ddprun"), 1);  // the warden may not have its own name yet
  agent.Signal(signo);
  EXPECT_EQ(agent.Wait(kExitLimit), kFailure) << agent.err();
  EXPECT_THAT(agent.err(), HasSubstr(said));
  EXPECT_THAT(LeftOf(traces, agent.mark()), IsEmpty());
}

TEST(EarlySignalsTest, WhileWaitingForNodes) {
  AdoptOrphans();
  Process store({DdprunPath(), "--store-only"});
  const std::vector<std::string> port = store.AwaitOut("");
  ASSERT_THAT(port, SizeIs(1));
  for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    const auto agent =
        StartAgent({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + port[0]}, {"true"});
    ASSERT_THAT(agent->AwaitErr("1/2 nodes joined"), SizeIs(1)) << agent->err();
    const Traces traces = TracesOf(agent->mark());
    ASSERT_THAT(traces.ports, Not(IsEmpty()));  // the agent's store already listens
    agent->Signal(signo);
    EXPECT_EQ(agent->Wait(kExitLimit), kFailure) << agent->err();
    EXPECT_THAT(agent->err(), HasSubstr("death signal, shutting down workers: SIG"));
    EXPECT_THAT(LeftOf(traces, agent->mark(), {store.pid()}), IsEmpty());
  }
}

TEST(EarlySignalsTest, WhileLookingForACoordinatorThatRefuses) {
  AdoptOrphans();
  const TakenPort refuses(TakenPort::Kind::kRefuses);
  const auto agent = StartAgent(
      {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + std::to_string(refuses.port())},
      {"true"});
  ASSERT_THAT(agent->AwaitErr("waiting for the coordinator"), SizeIs(1)) << agent->err();
  ExpectPromptExit(*agent, SIGTERM, "received SIGTERM while looking for the coordinator");
}

TEST(EarlySignalsTest, WhileACoordinatorDoesNotAnswer) {
  AdoptOrphans();
  TakenPort silent(TakenPort::Kind::kSilent);
  const auto agent = StartAgent(
      {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + std::to_string(silent.port())},
      {"true"});
  ASSERT_TRUE(silent.AwaitConnection());
  ExpectPromptExit(*agent, SIGTERM, "received SIGTERM while looking for the coordinator");
}

// Starts 60 agents in turn, and sends SIGTERM to each agent after a delay that grows by 250 us from agent to
// agent. The last agents may already run workers. Before main() the default action of the signal applies.
TEST(EarlySignalsTest, HandledFromProcessStart) {
  AdoptOrphans();
  int by_agent = 0, before_main = 0;
  for (int i = 0; i < 60; ++i) {
    const auto agent = StartAgent({"--nproc-per-node=2"}, {WorkerPath(), "--family"});
    const TimePoint when = std::chrono::steady_clock::now() + i * std::chrono::microseconds(250);
    while (std::chrono::steady_clock::now() < when) {
    }
    agent->Signal(SIGTERM);
    const std::optional<ProcessEnd> end = agent->Wait(kExitLimit);
    ASSERT_THAT(end, Optional(AnyOf(Eq(kFailure), Eq(ProcessEnd{.signal = SIGTERM})))) << agent->err();
    ++(*end == kFailure ? by_agent : before_main);
    ASSERT_THAT(LeftOf({}, agent->mark()), IsEmpty()) << i << " * 250 us after the start: " << agent->err();
  }
  EXPECT_GT(by_agent, 0);
  RecordProperty("ended_by_agent", by_agent);
  RecordProperty("ended_before_main", before_main);
}

}  // namespace
}  // namespace ddprun
