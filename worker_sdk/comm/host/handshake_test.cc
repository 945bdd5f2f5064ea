#include "worker_sdk/comm/host/handshake.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "ddprun/status.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

SetupLimit In(Duration d) { return {.deadline = std::chrono::steady_clock::now() + d}; }

Greeting GreetingOf(int from, int to, int64_t round) {
  return {.kind = LinkKind::kLane,
          .from = from,
          .to = to,
          .round = round,
          .run_id_hash = HashRunId("j1"),
          .token = {}};
}

// Acts as rank 0 of round 7, which accepts and answers one connection from rank 3.
class Host {
 public:
  explicit Host(Listener listener, int pass_fd = -1)
      : listener_(std::move(listener)), thread_([this, pass_fd] {
          result_ = listener_.Accept(1, In(seconds(30)), [&](const Greeting& greeting, UniqueFd& fd) {
            ++num_greeted_;
            if (greeting.round != 7 || greeting.from != 3) return false;
            EXPECT_EQ(Answer(fd, GreetingOf(0, 3, 7), pass_fd), OkStatus());
            accepted_ = std::move(fd);
            return true;
          });
        }) {}
  ~Host() { thread_.join(); }

  const std::string& address() const { return listener_.address(); }
  Status Join() {
    thread_.join();
    thread_ = std::thread([] {});
    return result_;
  }
  int num_greeted() const { return num_greeted_; }

 private:
  Listener listener_;
  int num_greeted_ = 0;
  UniqueFd accepted_;
  Status result_;
  std::thread thread_;
};

TEST(HandshakeTest, AcceptsTheExpectedRank) {
  Host host(*Listener::Tcp("127.0.0.1"));
  auto fd = ConnectTcp(host.address(), GreetingOf(3, 0, 7), In(seconds(30)));
  EXPECT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(host.Join(), OkStatus());
}

TEST(HandshakeTest, RefusesAnotherRoundAndStillAcceptsTheExpectedRank) {
  Host host(*Listener::Tcp("127.0.0.1"));
  EXPECT_EQ(ConnectTcp(host.address(), GreetingOf(3, 0, 6), In(seconds(30))).status().code(),
            StatusCode::kUnavailable);
  EXPECT_TRUE(ConnectTcp(host.address(), GreetingOf(3, 0, 7), In(seconds(30))).ok());
  EXPECT_EQ(host.Join(), OkStatus());
  EXPECT_EQ(host.num_greeted(), 2);
}

TEST(HandshakeTest, RejectsAnAnswerFromAnotherRank) {
  Host host(*Listener::Tcp("127.0.0.1"));
  EXPECT_EQ(ConnectTcp(host.address(), GreetingOf(3, 1, 7), In(seconds(30))).status().code(),
            StatusCode::kAborted);
}

TEST(HandshakeTest, PassesADescriptorOverAUnixSocket) {
  UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Host host(*Listener::Unix(), null.get());
  UniqueFd passed;
  auto fd = ConnectUnix(host.address(), GreetingOf(3, 0, 7), In(seconds(30)), &passed);
  ASSERT_TRUE(fd.ok()) << fd.status();
  char byte;
  EXPECT_EQ(read(passed.get(), &byte, 1), 0);
  EXPECT_EQ(fcntl(passed.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(HandshakeTest, ConnectFailsIfNoProcessListens) {
  std::string address;
  {
    auto listener = Listener::Tcp("127.0.0.1");
    ASSERT_TRUE(listener.ok()) << listener.status();
    address = listener->address();
  }
  const Status status = ConnectTcp(address, GreetingOf(3, 0, 7), In(seconds(30))).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
}

TEST(HandshakeTest, ConnectAndAcceptReturnAtTheDeadline) {
  auto listener = Listener::Tcp("127.0.0.1");
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(ConnectTcp(listener->address(), GreetingOf(3, 0, 7), In(milliseconds(20))).status().code(),
            StatusCode::kDeadlineExceeded);
  auto idle = Listener::Unix();
  ASSERT_TRUE(idle.ok()) << idle.status();
  EXPECT_EQ(idle->Accept(1, In(milliseconds(20)), [](auto&, auto&) { return true; }).code(),
            StatusCode::kDeadlineExceeded);
}

// Steps both sides in one thread, so neither may block.
TEST(HandshakeTest, ConnectsWithoutBlockingBesideGarbage) {
  auto listener = Listener::Tcp("127.0.0.1");
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto greeted = [](const Greeting& greeting, UniqueFd& fd) {
    if (greeting.from != 3) return false;
    const UniqueFd accepted = std::move(fd);
    return Answer(accepted, GreetingOf(0, 3, 7), -1).ok();
  };
  EXPECT_EQ(listener->AcceptReady(1, greeted), 0);
  TcpConnecting silent(listener->address(), GreetingOf(3, 0, 7));  // never sends its greeting
  TcpConnecting other(listener->address(), GreetingOf(2, 0, 7)),
      expected(listener->address(), GreetingOf(3, 0, 7));
  const TimePoint deadline = In(seconds(30)).deadline;
  int num_accepted = 0;
  auto refused = TcpConnecting::State::kPending, done = refused;
  while ((refused == TcpConnecting::State::kPending || done == TcpConnecting::State::kPending) &&
         std::chrono::steady_clock::now() < deadline) {
    if (refused == TcpConnecting::State::kPending) refused = other.Step();
    if (done == TcpConnecting::State::kPending) done = expected.Step();
    num_accepted += listener->AcceptReady(8, greeted);
  }
  EXPECT_EQ(num_accepted, 1);
  EXPECT_EQ(done, TcpConnecting::State::kDone);
  EXPECT_TRUE(expected.take());
  EXPECT_EQ(refused, TcpConnecting::State::kFailed);
  EXPECT_EQ(other.why().code(), StatusCode::kUnavailable) << other.why();
}

TEST(HandshakeTest, ConnectingReportsErrorsAtTheNextStep) {
  const auto state_of = [](const std::string& address) {
    TcpConnecting connecting(address, GreetingOf(3, 0, 7));
    auto state = TcpConnecting::State::kPending;
    for (const TimePoint deadline = In(seconds(30)).deadline;
         state == TcpConnecting::State::kPending && std::chrono::steady_clock::now() < deadline;) {
      state = connecting.Step();
    }
    EXPECT_EQ(state, TcpConnecting::State::kFailed) << address;
    return connecting.why().code();
  };
  EXPECT_EQ(state_of("localhost 1"), StatusCode::kInvalidArgument);
  const std::string closed = Listener::Tcp("127.0.0.1")->address();
  EXPECT_EQ(state_of(closed), StatusCode::kUnavailable);
}

TEST(HandshakeTest, TokensRoundTripThroughHex) {
  const Token token = *NewToken();
  EXPECT_EQ(*TokenFromHex(TokenToHex(token)), token);
  EXPECT_NE(*NewToken(), token);
  for (const char* bad :
       {"", "00", "zz112233445566778899aabbccddeeff", "00112233445566778899aabbccddeeff00"}) {
    EXPECT_EQ(TokenFromHex(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(HandshakeTest, RejectsAddressesThatAreNotNumeric) {
  EXPECT_EQ(Listener::Tcp("localhost").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ddprun
