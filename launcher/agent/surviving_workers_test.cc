// Tests the agent with real workers that survive their rounds. The worker is this program.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/worker_message.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/agent/agent_fixture.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

using ::testing::SizeIs;

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

// The program of a worker that survives its rounds: it parks when its round is over, and takes every offer.
int RunWorker() {
  const int local_rank = std::atoi(std::getenv("LOCAL_RANK"));
  Round round(std::atoi(std::getenv("DDPRUN_ROUND")));
  Channel agent(std::getenv("DDPRUN_AGENT_SOCKET"));
  agent.Send(Encode(Message(round, local_rank, SurvivalState::kAsks)));
  bool parked = false;
  while (agent.ok()) {
    const std::string packet = agent.Receive();
    if (packet.empty()) return 1;
    if (const std::optional<RoundOffer> offer = DecodeRoundOffer(packet)) {
      round = offer->round;
      parked = false;
    }
    const std::optional<AgentRequest> request = DecodeAgentRequest(packet);
    if (!request || request->round != round || !request->round_over || parked) continue;
    parked = true;
    agent.Send(Encode(Message(round, local_rank, SurvivalState::kParked)));
  }
  return 1;
}

class SurvivingWorkersTest : public AgentTest {};

// Its parent is not the worker, so it would outlive the worker, and what it says about parking proves nothing.
TEST_F(SurvivingWorkersTest, AProcessElsewhereCannotAskForAWorker) {
  const std::string path = absl::StrCat(testing::TempDir(), "/socket_name", getpid());
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
  if (argc > 1 && std::string(argv[1]) == "--worker") return ddprun::RunWorker();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
