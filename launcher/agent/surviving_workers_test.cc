// Tests the agent with real workers that survive their rounds. The worker is this program.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/worker_message.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/agent/agent_fixture.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A connection to the socket for workers.
class Channel {
 public:
  explicit Channel(const std::string& name) : fd_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    ok_ = connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0;
  }
  bool ok() const { return ok_; }
  int fd() const { return fd_.get(); }
  void Send(const std::string& packet) { ok_ = ok_ && send(fd_.get(), packet.data(), packet.size(), 0) >= 0; }
  // Blocks. Returns an empty text if the agent has closed the connection.
  std::string Receive() {
    char packet[kMaxWorkerMessageBytes];
    const ssize_t n = recv(fd_.get(), packet, sizeof packet, 0);
    return n <= 0 ? "" : std::string(packet, static_cast<size_t>(n));
  }

 private:
  const UniqueFd fd_;
  bool ok_ = false;
};

WorkerSurvival Message(Round round, int local_rank, SurvivalState state) {
  return {.round = round,
          .rank = Rank(local_rank),
          .local_rank = LocalRank(local_rank),
          .pid = getpid(),
          .state = state,
          .message = state == SurvivalState::kParked ? "rank 0 of round 0 is gone" : ""};
}

// The program of a worker that survives its rounds: it parks when its round is over, and takes every offer. In each round,
// it leaves a file with its pid in `directory` when the agent has agreed that it may survive. It reports a step in its first
// round only.
int RunWorker(const std::string& directory) {
  const int local_rank = std::atoi(std::getenv("LOCAL_RANK"));
  Round round(std::atoi(std::getenv("DDPRUN_ROUND")));
  Channel agent(std::getenv("DDPRUN_AGENT_SOCKET"));
  agent.Send(Encode(Message(round, local_rank, SurvivalState::kAsks)));
  agent.Send(Encode(WorkerReport{.round = round,
                                 .rank = Rank(local_rank),
                                 .local_rank = LocalRank(local_rank),
                                 .step = 50 + local_rank}));
  bool parked = false;
  while (agent.ok()) {
    const std::string packet = agent.Receive();
    if (const std::optional<RoundOffer> offer = DecodeRoundOffer(packet)) {
      round = offer->round;
      parked = false;
    }
    const std::optional<AgentRequest> request = DecodeAgentRequest(packet);
    if (!request || request->round != round || parked) continue;
    if (request->round_over) {
      parked = true;
      agent.Send(Encode(Message(round, local_rank, SurvivalState::kParked)));
    } else if (request->may_survive) {
      std::ofstream(absl::StrCat(directory, "/", round.value(), ".", local_rank)) << getpid() << std::endl;
    }
  }
  return 1;
}

class SurvivingWorkersTest : public AgentTest {
 protected:
  // Joins with two workers that survive their rounds.
  void StartWorkers() {
    config_.rdzv.lease = seconds(60);  // heartbeats get no answer
    StartProgram({"/proc/self/exe", "--worker", directory_}, 2);
    Await(proto::AgentMessage::kJoin);
    Welcome();
  }
  // Waits until this worker may survive the round. Returns its pid.
  pid_t AwaitWorker(int round, int local_rank) {
    std::string pid;
    RunUntil([&] {
      std::ifstream file(absl::StrCat(directory_, "/", round, ".", local_rank));
      return std::getline(file, pid) && !file.eof();
    });
    return pid.empty() ? 0 : std::stoi(pid);
  }
  // Starts a round, and waits until its workers may survive it. Returns their pids.
  std::vector<pid_t> RunRound(int round) {
    StartRound(round);
    return {AwaitWorker(round, 0), AwaitWorker(round, 1)};
  }

  const std::string directory_ = [] {
    std::string path = testing::TempDir() + "/workers_XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    return path;
  }();
};

TEST_F(SurvivingWorkersTest, ObserversKnowThemInTheNextRound) {
  StartWorkers();
  const std::vector<pid_t> first = RunRound(0);
  ASSERT_EQ(kill(first[0], SIGKILL), 0);
  Await(proto::AgentMessage::kWorkersFailed);
  Await(proto::AgentMessage::kReady);
  observer_.words.clear();
  const std::vector<pid_t> second = RunRound(1);
  EXPECT_EQ(second[1], first[1]);
  RunUntil([&] { return observer_.words.size() >= 3; });
  EXPECT_THAT(observer_.words, ElementsAre("round 1", "kept 1", "started 0"));
  Dismiss(proto::DISMISS_REASON_FAILED);
  AwaitExit();
}

// It has not failed at its start, which --min-uptime would end the job for.
TEST_F(SurvivingWorkersTest, AFailureBeforeTheFirstStepOfARoundHasTheStepOfEarlierRounds) {
  StartWorkers();
  const std::vector<pid_t> first = RunRound(0);
  ASSERT_EQ(kill(first[0], SIGKILL), 0);
  EXPECT_EQ(Await(proto::AgentMessage::kWorkersFailed).workers_failed().failure().step(), 50);
  Await(proto::AgentMessage::kReady);
  RunRound(1);
  proto::CoordinatorMessage stop;
  stop.mutable_stop()->set_round(1);
  Tell(stop);
  Await(proto::AgentMessage::kReady);
  ASSERT_EQ(RunRound(2)[1], first[1]);
  ASSERT_EQ(kill(first[1], SIGKILL), 0);
  const proto::Failure failure = Await(proto::AgentMessage::kWorkersFailed).workers_failed().failure();
  EXPECT_EQ(failure.local_rank(), 1);
  EXPECT_EQ(failure.step(), 51);
  EXPECT_THAT(failure.cause(), HasSubstr("failed: SIGKILL, after step 51"));
  Dismiss(proto::DISMISS_REASON_FAILED);
  AwaitExit();
}

// Its parent is not the worker, so it would outlive the worker, and what it says about parking proves nothing.
TEST_F(SurvivingWorkersTest, AProcessElsewhereCannotAskForAWorker) {
  const std::string path = directory_ + "/socket_name";
  Start(absl::StrCat("echo $DDPRUN_AGENT_SOCKET > ", path, "; echo >> ", path, "; exec sleep 1000"));
  Await(proto::AgentMessage::kJoin);
  Welcome();
  StartRound(0);
  std::string name, end;
  RunUntil([&] {
    std::ifstream file(path);
    return std::getline(file, name) && std::getline(file, end) &&
           std::count(observer_.words.begin(), observer_.words.end(), "started 0") == 1;
  });
  Channel channel(name);
  ASSERT_TRUE(channel.ok()) << name;
  channel.Send(Encode(Message(Round(0), 0, SurvivalState::kAsks)));
  std::string other_version = EncodeVersionNotice();
  other_version[4] = kWorkerMessageVersion + 1;
  channel.Send(other_version);
  ASSERT_TRUE(channel.ok());
  char first = 0;
  RunUntil([&] { return recv(channel.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0; });
  EXPECT_EQ(channel.Receive(), EncodeVersionNotice()) << "the first request has no answer";
  Dismiss(proto::DISMISS_REASON_FAILED);
  AwaitExit();
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--worker") return ddprun::RunWorker(argv[2]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
