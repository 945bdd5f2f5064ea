#include "tests/sim/world/sim_tcp.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace ddprun::sim {
namespace {

constexpr int kPort = 29500;

// Host 1 listens and host 0 connects. The fixture records what each side receives.
class SimTcpTest : public testing::Test {
 protected:
  explicit SimTcpTest(PathQuality quality = {}, uint64_t seed = 3) : net_(&clock_, Random(seed), quality) {
    client_host_ = tcp_.AddHost();
    server_host_ = tcp_.AddHost();
    Listen();
  }

  void Listen() {
    tcp_.Listen(server_host_, kPort, [this](SimSocket socket, HostId peer) {
      EXPECT_EQ(peer, client_host_);
      server_ = socket;
      ++accepted_;
      return SimTcp::Handlers{.on_message = [this](const std::string& m) { at_server_.push_back(m); },
                              .on_end = [this](StreamEnd why) { server_end_ = why; }};
    });
  }
  SimSocket Connect(int port = kPort) {
    return tcp_.Connect(client_host_, server_host_, port,
                        {.on_open = [this] { opened_ = true; },
                         .on_message = [this](const std::string& m) { at_client_.push_back(m); },
                         .on_end = [this](StreamEnd why) { client_end_ = why; }});
  }
  void Run(Duration d) { clock_.RunUntil(clock_.now() + d); }
  static std::vector<std::string> Numbers(int n) {
    std::vector<std::string> numbers;
    for (int i = 0; i < n; ++i) numbers.push_back(absl::StrCat(i));
    return numbers;
  }

  SimClock clock_;
  SimNetwork net_;
  SimTcp tcp_{&clock_, &net_};
  HostId client_host_ = -1, server_host_ = -1;
  SimSocket server_;
  int accepted_ = 0;
  bool opened_ = false;
  std::vector<std::string> at_server_, at_client_;
  std::optional<StreamEnd> server_end_, client_end_;
};

TEST_F(SimTcpTest, DeliversMessagesInBothDirectionsIncludingMessagesSentBeforeOpen) {
  const SimSocket client = Connect();
  tcp_.Send(client, "a");
  tcp_.Send(client, "b");
  Run(seconds(1));
  EXPECT_TRUE(opened_);
  EXPECT_EQ(at_server_, (std::vector<std::string>{"a", "b"}));
  tcp_.Send(server_, "c");
  Run(seconds(1));
  EXPECT_EQ(at_client_, std::vector<std::string>{"c"});
  EXPECT_EQ(client_end_, std::nullopt);
}

class BadPathTest : public SimTcpTest, public testing::WithParamInterface<uint64_t> {
 protected:
  BadPathTest() : SimTcpTest({.max_delay = milliseconds(40), .loss = 0.2, .twice = 0.2}, GetParam()) {}
};

TEST_P(BadPathTest, MessagesArriveOnceAndInOrderDespiteLossDuplicationAndReordering) {
  const SimSocket client = Connect();
  for (int i = 0; i < 100; ++i) {
    clock_.After(milliseconds(20 * i), [this, client, i] { tcp_.Send(client, absl::StrCat(i)); });
  }
  Run(seconds(10));
  for (int i = 0; i < 100; ++i) {
    clock_.After(milliseconds(20 * i), [this, i] { tcp_.Send(server_, absl::StrCat(i)); });
  }
  Run(seconds(40));
  EXPECT_EQ(at_server_, Numbers(100));
  EXPECT_EQ(at_client_, Numbers(100));
  EXPECT_EQ(accepted_, 1);
  EXPECT_GT(net_.num_lost(), 0);
  EXPECT_GT(net_.num_twice(), 0);
  tcp_.Shutdown(client);
  Run(seconds(20));
  EXPECT_EQ(server_end_, StreamEnd::kHungUp);
}
INSTANTIATE_TEST_SUITE_P(Seeds, BadPathTest, testing::Range<uint64_t>(1, 21));

TEST_F(SimTcpTest, MessagesSentDuringACutArriveAfterItsEnd) {
  const SimSocket client = Connect();
  Run(seconds(1));
  const auto cut = net_.Disturb({.from = {client_host_}, .loss = 1});
  for (const std::string& n : Numbers(10)) tcp_.Send(client, n);
  tcp_.Send(server_, "the other way is open");
  Run(seconds(5));
  EXPECT_TRUE(at_server_.empty());
  EXPECT_EQ(at_client_.size(), 1u);
  net_.Heal(cut);
  Run(seconds(10));  // long enough for a retransmission after backoff
  EXPECT_EQ(at_server_, Numbers(10));
  EXPECT_EQ(client_end_, std::nullopt);
}

TEST_F(SimTcpTest, ALongCutEndsTheConnectionOnTheSideThatSends) {
  const SimSocket client = Connect();
  Run(seconds(1));
  net_.Disturb({.to = {server_host_}, .loss = 1});
  tcp_.Send(client, "lost");
  Run(seconds(200));
  EXPECT_EQ(client_end_, StreamEnd::kTimedOut);
  // The server has no unacknowledged data, so TCP alone does not detect the cut.
  EXPECT_EQ(server_end_, std::nullopt);
}

TEST_F(SimTcpTest, APortWithoutListenerRefusesConnections) {
  Connect(kPort + 1);
  Run(seconds(1));
  EXPECT_EQ(client_end_, StreamEnd::kRefused);
  EXPECT_FALSE(opened_);
}

TEST_F(SimTcpTest, AHostWithoutPowerIsSilentAndResetsConnectionsAfterPowerOn) {
  const SimSocket client = Connect();
  Run(seconds(1));
  tcp_.PowerOff(server_host_);
  tcp_.Send(client, "lost");
  Run(seconds(3));
  EXPECT_EQ(client_end_, std::nullopt);
  tcp_.PowerOn(server_host_);
  Run(seconds(10));
  EXPECT_EQ(client_end_, StreamEnd::kReset);
  EXPECT_TRUE(at_server_.empty());
}

TEST_F(SimTcpTest, CloseDeliversSentMessagesAndThenTheEnd) {
  const SimSocket client = Connect();
  Run(seconds(1));
  tcp_.Send(client, "farewell");
  tcp_.Close(client);
  Run(seconds(1));
  EXPECT_EQ(at_server_, std::vector<std::string>{"farewell"});
  EXPECT_EQ(server_end_, StreamEnd::kHungUp);
  EXPECT_EQ(client_end_, std::nullopt);  // on_end is not invoked on the side that calls Close.
}

TEST_F(SimTcpTest, ReceivesAfterShutdown) {
  const SimSocket client = Connect();
  Run(seconds(1));
  tcp_.Shutdown(client);
  Run(seconds(1));
  tcp_.Send(server_, "late message");
  tcp_.Close(server_);
  Run(seconds(1));
  EXPECT_EQ(at_client_, std::vector<std::string>{"late message"});
  EXPECT_EQ(client_end_, StreamEnd::kHungUp);
}

TEST_F(SimTcpTest, OnEndIsInvokedOnlyOnceIfAResetFollowsTheClose) {
  const SimSocket client = Connect();
  Run(seconds(1));
  tcp_.Close(client);
  Run(seconds(1));
  tcp_.Send(server_, "unread");
  Run(seconds(1));
  EXPECT_EQ(server_end_, StreamEnd::kHungUp);  // reported once, when the peer closed
  server_end_.reset();
  tcp_.Send(server_, "?");
  Run(seconds(1));
  EXPECT_EQ(server_end_, std::nullopt);
}

TEST_F(SimTcpTest, AResetEndsBothSides) {
  const SimSocket client = Connect();
  Run(seconds(1));
  tcp_.Send(server_, "crosses");
  tcp_.Reset(client);
  Run(seconds(1));
  EXPECT_EQ(server_end_, StreamEnd::kReset);
  EXPECT_EQ(client_end_, std::nullopt);
  EXPECT_TRUE(at_client_.empty());
}

TEST_F(SimTcpTest, LateMessagesOfAnOldConnectionDoNotReachANewOne) {
  const SimSocket first = Connect();
  Run(seconds(1));
  const SimSocket first_server = server_;
  const auto cut = net_.Disturb({.from = {client_host_}, .loss = 1});
  tcp_.Send(first, "of the first connection");
  tcp_.Close(first);  // The process has exited, but the kernel of its host retransmits the message.
  Run(milliseconds(100));
  net_.Heal(cut);
  const SimSocket second = Connect();
  tcp_.Send(second, "of the second connection");
  Run(seconds(5));
  EXPECT_NE(server_, first_server);
  EXPECT_EQ(accepted_, 2);
  EXPECT_EQ(at_server_, (std::vector<std::string>{"of the second connection", "of the first connection"}));
}

}  // namespace
}  // namespace ddprun::sim
