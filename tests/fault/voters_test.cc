// Jobs whose agents keep the register of the job (--quorum=voters): the loss of the coordinator's process does not end the job.
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

const ProcessEnd kSuccess{.code = 0};
const ProcessEnd kFailure{.code = 1};
const ProcessEnd kKilled{.signal = SIGKILL};
constexpr Duration kLease = milliseconds(2000);

// Agents with one worker each. The first one founds the job.
class VotersTest : public testing::Test {
 protected:
  void SetUp() override { AdoptOrphans(); }

  // Starts an agent; the first one chooses the port.
  std::unique_ptr<Process> StartAgent(const Args& more = {}) {
    const Args argv =
        Args{DdprunPath(),
             "--nnodes=1:3",
             "--rdzv-id=j",
             "--quorum=voters",
             "--rdzv-conf=last_call_timeout=1,join_timeout=6,lease_ms=" + std::to_string(ToMillis(kLease)),
             "--shutdown-timeout=5"} +
        (endpoint_.empty() ? Args{} : Args{"--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint_}) + more +
        Args{WorkerPath(), gate_.flag()};
    return std::make_unique<Process>(argv, Stdio::kPipes, Environment{{"LOGLEVEL", "INFO"}});
  }
  // Waits until each agent has started its worker in the same next round, in any order of ranks, without a restart.
  void ExpectRound(const std::vector<Process*>& agents) {
    for (Process* const agent : agents) {
      const std::vector<std::string> lines =
          agent->AwaitOut("world_size=" + std::to_string(agents.size()) + " ");
      ASSERT_THAT(lines, SizeIs(1)) << agent->out() << agent->err();
      EXPECT_EQ(Field(lines[0], "restart"), 0) << agent->err();
    }
  }
  // Starts agents, one after the other.
  void Start(int agents, const Args& more = {}) {
    std::vector<Process*> started;
    for (int i = 0; i < agents; ++i) {
      agents_.push_back(StartAgent(more));
      if (i == 0) {
        const std::vector<std::string> line = agents_[0]->AwaitErr("other nodes join with: ");
        ASSERT_THAT(line, SizeIs(1)) << agents_[0]->err();
        const size_t at = line[0].find("--rdzv-endpoint=") + 16;
        endpoint_ = line[0].substr(at, line[0].find(' ', at) - at);
      }
      started.push_back(agents_.back().get());
      ExpectRound(started);
    }
    traces_ = TracesOf(agents_[0]->mark());
  }
  Process& agent(int i) { return *agents_.at(i); }
  std::vector<std::string> LeftOfFirst() {
    std::vector<pid_t> others;
    for (size_t i = 1; i < agents_.size(); ++i) others.push_back(agents_[i]->pid());
    return LeftOf(traces_, agents_[0]->mark(), others);
  }
  int Leaders(const std::vector<Process*>& agents) {
    int leaders = 0;
    for (Process* const agent : agents)
      leaders += agent->err().find("event=lead_begun") != std::string::npos ? 1 : 0;
    return leaders;
  }
  void Finish(const std::vector<Process*>& agents) {
    gate_.Open();
    for (Process* agent : agents) EXPECT_EQ(agent->Wait(), kSuccess) << agent->err();
  }

  Gate gate_;
  std::string endpoint_;
  std::vector<std::unique_ptr<Process>> agents_;
  Traces traces_;
};

TEST_F(VotersTest, TheAgentOfTheCoordinatorIsKilledAndStartedAgain) {
  Start(3);
  EXPECT_THAT(agent(0).AwaitErr("the job survives the loss of any 1 of them"), SizeIs(1)) << agent(0).err();
  agent(0).Signal(SIGKILL);
  EXPECT_EQ(agent(0).Wait(), kKilled);
  ExpectRound({&agent(1), &agent(2)});
  EXPECT_EQ(Leaders({&agent(1), &agent(2)}), 1);
  EXPECT_THAT(agent(1).err() + agent(2).err(), HasSubstr("the last coordinator has exited"));
  EXPECT_THAT(LeftOfFirst(), IsEmpty());
  // The new agent listens where nodes look for the coordinator first. It learns that the job exists, and joins it.
  agents_[0] = StartAgent();
  ExpectRound({&agent(0), &agent(1), &agent(2)});
  Finish({&agent(0), &agent(1), &agent(2)});
}

TEST_F(VotersTest, TheAgentOfTheCoordinatorGetsASignal) {
  Start(3);
  agent(0).Signal(SIGTERM);
  ExpectRound({&agent(1), &agent(2)});
  EXPECT_EQ(agent(0).Wait(), kFailure);
  EXPECT_THAT(agent(1).err() + agent(2).err(), HasSubstr("handed over"));
  EXPECT_THAT(LeftOfFirst(), IsEmpty());
  Finish({&agent(1), &agent(2)});
}

TEST_F(VotersTest, TheFirstOfTwoAgentsHandsOver) {
  Start(2);
  EXPECT_THAT(agent(0).AwaitErr("the loss of this node, the coordinator's, ends the job"), SizeIs(1))
      << agent(0).err();
  agent(0).Signal(SIGTERM);
  ExpectRound({&agent(1)});
  EXPECT_EQ(agent(0).Wait(), kFailure);
  Finish({&agent(1)});
}

TEST_F(VotersTest, TheSecondOfTwoAgentsIsKilled) {
  Start(2);
  agent(1).Signal(SIGKILL);
  EXPECT_EQ(agent(1).Wait(), kKilled);
  ExpectRound({&agent(0)});
  Finish({&agent(0)});
}

// Most of the voters are lost at once, but their wardens prove that their processes have exited.
TEST_F(VotersTest, AllOtherAgentsAreKilledAtOnce) {
  Start(3);
  for (const int i : {1, 2}) agent(i).Signal(SIGKILL);
  ExpectRound({&agent(0)});
  EXPECT_THAT(agent(0).err(), Not(HasSubstr("event=lead_lost")));
  Finish({&agent(0)});
}

TEST_F(VotersTest, AllOtherAgentsLeaveAtOnce) {
  Start(3);
  for (const int i : {1, 2}) agent(i).Signal(SIGTERM);
  ExpectRound({&agent(0)});
  EXPECT_THAT(agent(0).err(), Not(HasSubstr("event=lead_lost")));
  for (const int i : {1, 2}) EXPECT_EQ(agent(i).Wait(), kFailure);
  // It is a job of its own, which others may join.
  agents_[1] = StartAgent();
  ExpectRound({&agent(0), &agent(1)});
  Finish({&agent(0), &agent(1)});
}

TEST_F(VotersTest, TheAgentOfTheCoordinatorIsStoppedPastItsLeaseAndContinued) {
  Start(3);
  agent(0).Signal(SIGSTOP);
  ExpectRound({&agent(1), &agent(2)});
  agent(0).Signal(SIGCONT);
  ExpectRound({&agent(0), &agent(1), &agent(2)});
  EXPECT_THAT(agent(0).err(), HasSubstr("event=lead_lost"));
  Finish({&agent(0), &agent(1), &agent(2)});
}

// One after the other: the voters change with each round, so that three agents survive more losses than one.
TEST_F(VotersTest, AnotherAgentAndThenThatOfTheCoordinator) {
  Start(3);
  agent(2).Signal(SIGKILL);
  EXPECT_EQ(agent(2).Wait(), kKilled);
  ExpectRound({&agent(0), &agent(1)});
  agents_[2] = StartAgent();
  ExpectRound({&agent(0), &agent(1), &agent(2)});
  agent(0).Signal(SIGKILL);
  EXPECT_EQ(agent(0).Wait(), kKilled);
  ExpectRound({&agent(1), &agent(2)});
  Finish({&agent(1), &agent(2)});
}

// The only voter is lost.
TEST_F(VotersTest, WithTwoAgentsTheJobEndsWithTheCoordinator) {
  Start(2);
  agent(0).Signal(SIGKILL);
  EXPECT_EQ(agent(0).Wait(), kKilled);
  EXPECT_EQ(agent(1).Wait(), kFailure);
  EXPECT_THAT(agent(1).err(), AllOf(HasSubstr("the coordinator is lost. Start the job again on all nodes"),
                                    HasSubstr("so many of the job's voters have exited")));
}

// Two of three agents stop. The third one, which leads, stops its worker, and gives the job up.
TEST_F(VotersTest, TheMinorityStops) {
  Start(3, {"--exit-codes=scheduler"});
  agent(1).Signal(SIGSTOP);
  agent(2).Signal(SIGSTOP);
  ASSERT_THAT(agent(0).AwaitErr("event=lead_lost"), SizeIs(1)) << agent(0).err();
  EXPECT_EQ(agent(0).Wait(), ProcessEnd{.code = 75});
  EXPECT_THAT(agent(0).err(), HasSubstr("no quorum of the job's voters: 1 of 3 have answered"));
  EXPECT_THAT(LeftOfFirst(), IsEmpty());
  agent(1).Signal(SIGCONT);
  agent(2).Signal(SIGCONT);
  ExpectRound({&agent(1), &agent(2)});
  Finish({&agent(1), &agent(2)});
}

TEST_F(VotersTest, DdpctlFindsTheCoordinator) {
  Start(3);
  agent(0).Signal(SIGSTOP);
  ExpectRound({&agent(1), &agent(2)});
  agent(0).Signal(SIGCONT);
  ExpectRound({&agent(0), &agent(1), &agent(2)});
  // The agent at the endpoint does not coordinate the job any more.
  const std::string ddpctl = MakeTestDirectory() + "/ddpctl";
  std::filesystem::create_symlink(DdprunPath(), ddpctl);
  for (const std::string& endpoints : {endpoint_, "127.0.0.1:1," + endpoint_}) {
    Process status({ddpctl, "status", "--rdzv-endpoint=" + endpoints});
    EXPECT_EQ(status.Wait(), kSuccess) << status.err();
    EXPECT_THAT(status.out(), AllOf(HasSubstr("job j"), HasSubstr("3 nodes")));
  }
  Process stop({ddpctl, "stop", "--rdzv-endpoint=" + endpoint_});
  EXPECT_EQ(stop.Wait(), kSuccess) << stop.err();
  for (const int i : {0, 1, 2}) EXPECT_EQ(agent(i).Wait(), kFailure) << agent(i).err();
}

TEST_F(VotersTest, AnAgentWithoutVotersDoesNotJoin) {
  Start(1);
  const auto other = StartAgent({"--quorum=none"});
  EXPECT_EQ(other->Wait(), kFailure);
  EXPECT_THAT(other->err(), HasSubstr("--quorum=none, but the job has --quorum=voters"));
  Finish({&agent(0)});
}

}  // namespace
}  // namespace ddprun
