#include "rendezvous/grpc/grpc_port.h"

#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/wake_timer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "net/port_listener.h"
#include "net/testing/io_thread.h"
#include "net/testing/raw_peer.h"
#include "proto/rendezvous.grpc.pb.h"
#include "rendezvous/testing/join.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// An agent that uses gRPC's blocking client and can violate the protocol. All its calls end within 20 s.
class TestAgent {
 public:
  explicit TestAgent(int port)
      : channel_(grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials())),
        stub_(proto::Coordinator::NewStub(channel_)) {
    context_.set_deadline(std::chrono::system_clock::now() + seconds(20));
    stream_ = stub_->Attend(&context_);
  }
  ~TestAgent() {
    context_.TryCancel();
    End();
  }

  bool Join(const std::string& node, int nodes, int lease_ms = 60'000) {
    proto::AgentMessage message = JoinOf(node, nodes);
    (*message.mutable_join()->mutable_rules())["lease_ms"] = lease_ms;
    return stream_->Write(message);
  }
  bool Beat() {
    proto::AgentMessage message;
    message.mutable_heartbeat();
    return stream_->Write(message);
  }
  // Returns the next message other than a waiting notice, or an empty message at the end of the stream.
  proto::CoordinatorMessage Next() {
    proto::CoordinatorMessage message;
    do {
      if (!stream_->Read(&message)) return {};
    } while (message.has_waiting());
    return message;
  }
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  // Reads the remaining messages and returns the status of the stream.
  grpc::Status End() {
    proto::CoordinatorMessage ignored;
    while (stream_->Read(&ignored)) {
    }
    return std::exchange(ended_, true) ? grpc::Status::OK : stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<proto::Coordinator::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<proto::AgentMessage, proto::CoordinatorMessage>> stream_;
  bool ended_ = false;
};

class GrpcPortTest : public ::testing::Test {
 protected:
  struct Server {
    explicit Server(boost::asio::io_context& io, Duration join_limit = seconds(60))
        : coordinator(std::make_unique<AsioWakeTimer>(io),
                      [](absl::string_view, absl::string_view, absl::string_view) {}, {.join = join_limit}),
          port(std::make_unique<GrpcPort>(io, &coordinator)) {
      PortHandlers handlers;
      handlers.grpc = [this](int fd) { port->Adopt(fd); };
      handlers.c10d = [](int fd) { ::close(fd); };
      listener = PortListener::Open(io, "127.0.0.1", 0, std::move(handlers)).value();
    }
    Coordinator coordinator;
    std::unique_ptr<GrpcPort> port;
    std::unique_ptr<PortListener> listener;
  };

  ~GrpcPortTest() override {
    thread_.Run([this] { server_.reset(); });
  }
  int port() const { return server_->listener->port(); }
  bool AwaitPeers(int count) {
    return thread_.Eventually([this, count] { return server_->coordinator.num_peers() == count; });
  }

  IoThread thread_;
  std::unique_ptr<Server> server_ = thread_.Run([this] { return std::make_unique<Server>(thread_.io()); });
};

TEST_F(GrpcPortTest, AgentsFormARoundAndHeartbeatsAreAnswered) {
  TestAgent a(port());
  ASSERT_TRUE(a.Join("a", 2));
  const proto::CoordinatorMessage welcome = a.Next();
  EXPECT_EQ(welcome.welcome().heartbeat_ms(), 15'000);
  EXPECT_EQ(welcome.welcome().seen_addr(), "127.0.0.1");
  TestAgent b(port());
  ASSERT_TRUE(b.Join("b", 2));
  EXPECT_TRUE(b.Next().has_welcome());
  EXPECT_EQ(a.Next().start().group_rank(), 0);
  EXPECT_EQ(b.Next().start().group_rank(), 1);
  ASSERT_TRUE(a.Beat());
  EXPECT_TRUE(a.Next().has_heard());
}

TEST(GrpcPortAdoptTest, SetsTcpNoDelay) {
  boost::asio::io_context io;
  Coordinator coordinator(std::make_unique<AsioWakeTimer>(io),
                          [](absl::string_view, absl::string_view, absl::string_view) {});
  GrpcPort port(io, &coordinator);
  boost::asio::ip::tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
  boost::asio::ip::tcp::socket client(io);
  client.connect(acceptor.local_endpoint());
  boost::asio::ip::tcp::socket accepted = acceptor.accept();
  const int copy = dup(accepted.native_handle());
  port.Adopt(accepted.release());
  int on = 0;
  socklen_t size = sizeof on;
  EXPECT_EQ(getsockopt(copy, IPPROTO_TCP, TCP_NODELAY, &on, &size), 0);
  EXPECT_NE(on, 0);
  close(copy);
}

TEST_F(GrpcPortTest, ANodeIsLostIfItsStreamBreaks) {
  TestAgent a(port());
  ASSERT_TRUE(a.Join("a", 2));
  a.Next();
  {
    TestAgent b(port());
    ASSERT_TRUE(b.Join("b", 2));
    b.Next();
    EXPECT_TRUE(a.Next().has_start());
    b.Cancel();
  }
  EXPECT_THAT(a.Next().stop().reason(), HasSubstr("host-b (b) is lost: its connection broke"));
  EXPECT_TRUE(AwaitPeers(1));
}

TEST_F(GrpcPortTest, AHalfClosedStreamEndsAndItsNodeIsLost) {
  TestAgent a(port());
  ASSERT_TRUE(a.Join("a", 2));
  a.Next();
  a.HalfClose();
  EXPECT_TRUE(a.End().ok());
  EXPECT_TRUE(AwaitPeers(0));
}

TEST_F(GrpcPortTest, AConnectionThatNeverJoinsIsEvicted) {
  thread_.Run([this] { server_ = std::make_unique<Server>(thread_.io(), milliseconds(10)); });
  TestAgent a(port());
  EXPECT_EQ(a.Next().dismiss().reason(), proto::DISMISS_REASON_EVICTED);
  EXPECT_TRUE(a.End().ok());
  EXPECT_TRUE(AwaitPeers(0));
}

TEST_F(GrpcPortTest, ASilentNodeIsDismissedWhenItsLeaseExpires) {
  TestAgent a(port());
  ASSERT_TRUE(a.Join("a", 2, /*lease_ms=*/20));
  a.Next();
  EXPECT_THAT(a.Next().dismiss().message(), HasSubstr("has not been heard from for 20 ms"));
  EXPECT_TRUE(AwaitPeers(0));
}

TEST_F(GrpcPortTest, AnAgentThatReadsNothingIsDisconnected) {
  TestAgent a(port());
  ASSERT_TRUE(a.Join("a", 2));
  // Every heartbeat is answered. Answers that do not fit in the buffers of gRPC and the kernel are queued in
  // the outbox, which is bounded. An answer is 7 bytes on the wire, and the buffers hold a few megabytes.
  int64_t beats = 0;
  while (a.Beat()) ++beats;
  EXPECT_GT(beats, 1000);
  EXPECT_TRUE(AwaitPeers(0)) << beats;
}

TEST_F(GrpcPortTest, InvalidBytesEndOnlyTheirConnection) {
  TestAgent a(port());
  ASSERT_TRUE(a.Join("a", 2));
  a.Next();
  for (const std::string& bytes :
       {std::string("PRIority\r\n\r\n"), std::string(kPreface) + std::string(1000, '\xff'),
        std::string("\x16\x03\x01") + std::string(100, '\0')}) {
    RawPeer stranger(port());
    stranger.Send(bytes);
    stranger.Shutdown();
    std::string answer;
    EXPECT_NE(stranger.ReceiveToEnd(&answer), RawPeer::End::kStillOpen) << bytes;
  }
  ASSERT_TRUE(a.Beat());
  EXPECT_TRUE(a.Next().has_heard());
}

TEST_F(GrpcPortTest, ALargeMessageEndsOnlyItsStream) {
  TestAgent a(port());
  ASSERT_TRUE(a.Join("a", 2));
  a.Next();
  TestAgent b(port());
  EXPECT_TRUE(b.Join(std::string(2 << 20, 'x'), 2));
  EXPECT_EQ(b.End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  ASSERT_TRUE(a.Beat());
  EXPECT_TRUE(a.Next().has_heard());
}

TEST_F(GrpcPortTest, ShutsDownQuicklyWithOpenConnections) {
  TestAgent member(port());
  ASSERT_TRUE(member.Join("a", 2));
  member.Next();
  TestAgent stranger(port());
  RawPeer mute(port());
  ASSERT_TRUE(mute.Send(kPreface));
  ASSERT_TRUE(AwaitPeers(2));
  const auto begin = std::chrono::steady_clock::now();
  // The coordinator may not have handled this message when the port is destroyed.
  ASSERT_TRUE(member.Beat());
  thread_.Run([this] { server_->port.reset(); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
  EXPECT_FALSE(member.End().ok());
  // The handlers that the streams have posted run now, while the coordinator still exists.
  EXPECT_TRUE(AwaitPeers(0));
}

TEST_F(GrpcPortTest, StreamsMayOutliveTheCoordinator) {
  TestAgent member(port());
  ASSERT_TRUE(member.Join("a", 2));
  member.Next();
  thread_.Run([this] { server_.reset(); });
  EXPECT_FALSE(member.End().ok());
  thread_.Run([] {});  // runs after all posted handlers
}

}  // namespace
}  // namespace ddprun
