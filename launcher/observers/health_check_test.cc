#include "launcher/observers/health_check.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "net/testing/raw_peer.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using State = AgentMachine::State;

constexpr char kGet[] = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";

class HealthCheckTest : public testing::Test {
 protected:
  HealthCheckTest() {
    auto check = HealthCheck::Open(loop_, 0);
    if (check.ok()) check_ = *std::move(check);
  }
  void SetUp() override { ASSERT_NE(check_, nullptr); }

  std::string Ask(absl::string_view request = kGet, const std::string& address = "127.0.0.1") {
    RawPeer peer(check_->port(), address);
    EXPECT_TRUE(peer.Send(request));
    std::string reply;
    peer.ReceiveToEnd(&reply);
    return reply;
  }

  boost::asio::io_context loop_;  // never runs, like the loop of an agent that hangs
  std::unique_ptr<HealthCheck> check_;
};

TEST_F(HealthCheckTest, ServesTheAgentsStateWhileItsLoopHangs) {
  check_->OnState(State::kRunning, Round(3), 2, {});
  const std::string reply = Ask();
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(reply, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(reply,
              HasSubstr("{\"healthy\": true, \"state\": \"running\", \"round\": 3, \"workers_running\": 2"));
  check_->OnState(State::kSeeking, Round(3), 0, {});
  EXPECT_THAT(Ask(), StartsWith("HTTP/1.1 503 "));
  check_->OnState(State::kRunning, Round(4), 2, {});
  check_->OnWorkersGone({"process 7"}, {});
  EXPECT_THAT(Ask(), HasSubstr("process 7"));
  check_->OnWorkersGone({}, {});
  EXPECT_THAT(Ask("GET /healthz?x=1 HTTP/1.0\r\n\r\n"), HasSubstr(" 200 OK")) << "every path must be served";
}

TEST_F(HealthCheckTest, ListensOnIpv4AndIpv6) {
  EXPECT_THAT(Ask(kGet, "127.0.0.1"), HasSubstr(" 200 OK"));
  EXPECT_THAT(Ask(kGet, "::1"), HasSubstr(" 200 OK"));
}

TEST_F(HealthCheckTest, AnswersAfterMalformedRequests) {
  EXPECT_THAT(Ask("garbage\r\n\r\n"), HasSubstr("400"));
  EXPECT_THAT(Ask("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), HasSubstr("405"));
  EXPECT_THAT(Ask(absl::StrCat("GET / HTTP/1.1\r\nX: ", std::string(10'000, 'x'), "\r\n\r\n")),
              HasSubstr("431"));
  EXPECT_THAT(Ask(), HasSubstr(" 200 OK"));
}

TEST_F(HealthCheckTest, ClosesSilentConnectionsAndServesOthers) {
  // Open more connections than the server keeps open at a time, each with an incomplete request.
  std::vector<RawPeer> slow;
  for (int i = 0; i < 100; ++i) {
    slow.emplace_back(check_->port());
    ASSERT_TRUE(slow.back().Send("GET / HT"));
  }
  EXPECT_THAT(Ask(), HasSubstr(" 200 OK"));
  std::string bytes;
  EXPECT_NE(slow.front().ReceiveToEnd(&bytes), RawPeer::End::kStillOpen);
  EXPECT_EQ(bytes, "");
}

TEST_F(HealthCheckTest, ErrorsNameAPortThatIsInUse) {
  const auto second = HealthCheck::Open(loop_, check_->port());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrCat("port ", check_->port())));
}

}  // namespace
}  // namespace ddprun
