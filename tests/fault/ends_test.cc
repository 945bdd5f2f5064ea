// Tests that a job leaves no process, port, socket or shared memory behind, however it ends.
#include <signal.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::Contains;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

// The character that a terminal gets for Ctrl-C.
constexpr char kCtrlC[] = "\x03";
constexpr char kWarden[] = "ddp-warden";

// A running job, the resources that it holds, and its workers' gate.
struct Running {
  Process& agent;
  const Traces& traces;
  const std::vector<int>& workers;  // pids, by rank
  Gate& gate;
};

struct End {
  std::string name;
  Stdio stdio = Stdio::kPipes;
  Args options = {};
  Args worker = {};  // flags of the worker
  std::function<void(Running&)> fault = {};
  ProcessEnd end = {};                 // how the agent must end
  std::vector<std::string> said = {};  // messages of the agent that prove that the fault fired
};

void PrintTo(const End& end, std::ostream* out) { *out << end.name; }

void Send(Running& job, int signo) { job.agent.Signal(signo); }

// Types Ctrl-C, and types it again after the agent has handled the first Ctrl-C.
void TypeCtrlCTwice(Running& job) {
  job.agent.Type(kCtrlC);
  ASSERT_THAT(job.agent.AwaitOut("death signal, shutting down workers: SIGINT "), SizeIs(1))
      << job.agent.out();
  job.agent.Type(kCtrlC);
}

void SendTwice(Running& job, int signo, const std::string& response) {
  job.agent.Signal(signo);
  ASSERT_THAT(job.agent.AwaitErr(response), SizeIs(1)) << job.agent.err();
  job.agent.Signal(signo);
}

const std::vector<End>& Ends() {
  static const auto& ends = *new std::vector<End>{
      {.name = "Success", .fault = [](Running& job) { job.gate.Open(); }, .end = {.code = 0}},
      {.name = "WorkerExitsWithAnError",
       .worker = {"--fail-in-round=0"},
       .fault = [](Running& job) { job.gate.Open(); },
       .end = {.code = 1},
       .said = {"exitcode  : 3", "no restart is allowed"}},
      {.name = "WorkerKilled",
       .fault = [](Running& job) { kill(job.workers[1], SIGKILL); },
       .end = {.code = 1},
       .said = {"SIGKILL", "no restart is allowed"}},
      {.name = "WorkerKilledOthersStubborn",
       .options = {"--shutdown-timeout=1"},
       .worker = {"--stubborn"},
       .fault = [](Running& job) { kill(job.workers[0], SIGKILL); },
       .end = {.code = 1},
       .said = {"did not exit within 1 s: sending SIGKILL"}},
      {.name = "CtrlC",
       .stdio = Stdio::kTerminal,
       .fault = [](Running& job) { job.agent.Type(kCtrlC); },
       .end = {.code = 1},
       .said = {"death signal, shutting down workers: SIGINT "}},
      {.name = "CtrlCTwiceStubborn",
       .stdio = Stdio::kTerminal,
       .worker = {"--stubborn"},
       .fault = TypeCtrlCTwice,
       .end = {.code = 1},
       .said = {"received SIGINT again: killing"}},
      {.name = "TerminalCloses",
       .stdio = Stdio::kTerminal,
       .options = {"--shutdown-timeout=1"},
       .worker = {"--stubborn"},
       .fault = [](Running& job) { job.agent.CloseTerminal(); },
       .end = {.code = 1}},
      {.name = "Sigint",
       .fault = [](Running& job) { Send(job, SIGINT); },
       .end = {.code = 1},
       .said = {"death signal, shutting down workers: SIGINT "}},
      {.name = "SigintTwiceStubborn",
       .worker = {"--stubborn"},
       .fault = [](Running& job) { SendTwice(job, SIGINT, "death signal, shutting down workers: SIGINT "); },
       .end = {.code = 1},
       .said = {"received SIGINT again: killing"}},
      {.name = "Sigterm",
       .fault = [](Running& job) { Send(job, SIGTERM); },
       .end = {.code = 1},
       .said = {"death signal, shutting down workers: SIGTERM "}},
      {.name = "SigtermStubborn",
       .options = {"--shutdown-timeout=1"},
       .worker = {"--stubborn"},
       .fault = [](Running& job) { Send(job, SIGTERM); },
       .end = {.code = 1},
       .said = {"did not exit within 1 s: sending SIGKILL"}},
      {.name = "SigtermTwiceStubborn",
       .worker = {"--stubborn"},
       .fault =
           [](Running& job) { SendTwice(job, SIGTERM, "death signal, shutting down workers: SIGTERM "); },
       .end = {.code = 1},
       .said = {"received SIGTERM again: killing"}},
      {.name = "AnotherSignalIsHandled",
       .options = {"--signals-to-handle=SIGUSR1,SIGTERM"},
       .fault = [](Running& job) { Send(job, SIGUSR1); },
       .end = {.code = 1},
       .said = {"death signal, shutting down workers: SIGUSR1 "}},
      {.name = "AnotherSignalTwiceStubborn",
       .options = {"--signals-to-handle=SIGUSR1"},
       .worker = {"--stubborn"},
       .fault =
           [](Running& job) { SendTwice(job, SIGUSR1, "death signal, shutting down workers: SIGUSR1 "); },
       .end = {.code = 1},
       .said = {"received SIGUSR1 again: killing"}},
      {.name = "SignalThatIsNotHandled",
       .options = {"--signals-to-handle=SIGTERM"},
       .worker = {"--stubborn"},
       .fault = [](Running& job) { Send(job, SIGINT); },
       .end = {.signal = SIGINT}},
      {.name = "AgentKilled",
       .worker = {"--stubborn"},
       .fault = [](Running& job) { Send(job, SIGKILL); },
       .end = {.signal = SIGKILL}},
      {.name = "WardenKilled",
       .worker = {"--stubborn"},
       .fault = [](Running& job) { kill(job.traces.Find(kWarden), SIGKILL); },
       .end = {.code = 1},
       .said = {"was killed by a signal"}},
  };
  return ends;
}

class JobEndsTest : public testing::TestWithParam<End> {};

// The job has two workers. Each worker has a child, a child in a separate session that ignores signals, and a
// daemon.
TEST_P(JobEndsTest, NothingIsLeft) {
  const End& end = GetParam();
  AdoptOrphans();
  Gate gate;
  const auto agent = StartAgent(Args{"--nproc-per-node=2"} + end.options,
                                Args{WorkerPath(), "--family", gate.flag()} + end.worker, end.stdio);
  const std::vector<std::string> ready = agent->AwaitOut("ready ", 2);
  ASSERT_THAT(ready, SizeIs(2)) << agent->out() << agent->err();
  std::vector<int> workers(2);
  for (const std::string& line : ready) workers.at(Field(line, "rank")) = Field(line, "pid");
  // The daemon has no mark, but LeftOf finds it as a descendant of this process.
  const Traces traces = TracesOf(agent->mark());
  ASSERT_EQ(traces.Count("ddprun"), 1);
  ASSERT_EQ(traces.Count(kWarden), 1);
  ASSERT_EQ(traces.Count("worker"), 2 * 3);
  ASSERT_THAT(traces.ports, SizeIs(Ge(2)));  // the ports of the coordinator and of the worker store
  ASSERT_THAT(traces.ports, Contains(Pair(testing::_, PortOf(TextField(ready[0], "master")))));
  ASSERT_THAT(traces.abstract_sockets, SizeIs(Ge(1)));

  Running job{*agent, traces, workers, gate};
  end.fault(job);
  EXPECT_EQ(agent->Wait(), end.end) << agent->out() << agent->err();
  EXPECT_THAT(LeftOf(traces, agent->mark()), IsEmpty());
  const std::string& said = end.stdio == Stdio::kTerminal ? agent->out() : agent->err();
  for (const std::string& words : end.said) EXPECT_THAT(said, HasSubstr(words));
}

INSTANTIATE_TEST_SUITE_P(All, JobEndsTest, testing::ValuesIn(Ends()),
                         [](const auto& info) { return info.param.name; });

struct TrainEnd {
  std::string name;
  Args program;
  std::function<void(Running&)> fault;
  ProcessEnd end;
};

// The workers are killed by their parent-death signal. They have no children in this test, because no process
// would be left that could kill the children.
TEST(EndsTest, WorkersDieWhenAgentAndWardenAreKilledTogether) {
  AdoptOrphans();
  const auto agent = StartAgent({"--nproc-per-node=2"}, {WorkerPath(), "--stubborn"});
  ASSERT_THAT(agent->AwaitOut("ready ", 2), SizeIs(2)) << agent->err();
  const Traces traces = TracesOf(agent->mark());
  ASSERT_EQ(traces.Count("worker"), 2);
  // The agent is stopped first, so that neither process can react to the death of the other.
  agent->Signal(SIGSTOP);
  kill(traces.Find(kWarden), SIGKILL);
  agent->Signal(SIGKILL);
  EXPECT_EQ(agent->Wait(), ProcessEnd{.signal = SIGKILL});
  EXPECT_THAT(LeftOf(traces, agent->mark()), IsEmpty());
}

void PrintTo(const TrainEnd& end, std::ostream* out) { *out << end.name; }

class TrainEndsTest : public testing::TestWithParam<TrainEnd> {};

// The workers of this job use shared memory and sockets of their own.
TEST_P(TrainEndsTest, NothingIsLeft) {
  AdoptOrphans();
  const auto agent = StartAgent({"--nproc-per-node=2"}, GetParam().program);
  agent->HoldOut();  // keeps the job running until TracesOf has found its resources
  ASSERT_THAT(agent->AwaitOut("step=3/"), SizeIs(1)) << agent->out() << agent->err();
  const Traces traces = TracesOf(agent->mark());
  ASSERT_EQ(traces.Count("train"), 2);
  ASSERT_THAT(traces.ports, SizeIs(Ge(2)));
  ASSERT_THAT(traces.shared_memory, Contains(Pair(testing::_, HasSubstr("ddprun-comm"))));

  std::vector<int> workers;
  for (const auto& [pid, name] : traces.processes) {
    if (name == "train") workers.push_back(pid);
  }
  Gate unused;
  Running job{*agent, traces, workers, unused};
  agent->FreeOut();
  GetParam().fault(job);
  EXPECT_EQ(agent->Wait(), GetParam().end) << agent->err();
  EXPECT_THAT(LeftOf(traces, agent->mark()), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    All, TrainEndsTest,
    testing::Values(
        // So many lines do not fit into the buffers between the workers and this test.
        TrainEnd{"Success", Training(5000), [](Running&) {}, {.code = 0}},
        TrainEnd{"Sigint", Training(), [](Running& job) { job.agent.Signal(SIGINT); }, {.code = 1}},
        TrainEnd{
            "WorkerKilled", Training(), [](Running& job) { kill(job.workers[0], SIGKILL); }, {.code = 1}},
        TrainEnd{"WorkersStopped",  // only SIGKILL ends a stopped process
                 Training(),
                 [](Running& job) {
                   for (const int pid : job.workers) kill(pid, SIGSTOP);
                   job.agent.Signal(SIGKILL);
                 },
                 {.signal = SIGKILL}},
        TrainEnd{
            "AgentKilled", Training(), [](Running& job) { job.agent.Signal(SIGKILL); }, {.signal = SIGKILL}}),
    [](const auto& info) { return info.param.name; });

TEST(TracesTest, LeftoversAreFound) {
  AdoptOrphans();
  const auto agent = StartAgent({"--nproc-per-node=2"}, Training());
  ASSERT_THAT(agent->AwaitOut("step=1/"), SizeIs(1)) << agent->err();
  const Traces traces = TracesOf(agent->mark());
  // No process has this mark, so LeftOf must find nothing.
  EXPECT_THAT(LeftOf({}, agent->mark() + "0", {agent->pid()}, Duration::zero()), IsEmpty());
  const std::vector<std::string> left = LeftOf(traces, agent->mark(), {}, Duration::zero());
  for (const char* what :
       {"(ddprun)", "(ddp-warden)", "(train)", "port ", "abstract socket @", "shared memory "})
    EXPECT_THAT(left, Contains(HasSubstr(what)));
}

}  // namespace
}  // namespace ddprun
