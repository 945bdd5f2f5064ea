// Tests the mesh of a lane. The test acts as the peer: the same lane on another node.

#include "worker_sdk/comm/host/tcp_mesh.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/host/link_watch.h"
#include "worker_sdk/comm/host/message_flow.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/record.h"
#include "worker_sdk/comm/host/segment.h"

namespace ddprun {
namespace {

constexpr int64_t kRound = 7;
constexpr int kPeer = 1;
constexpr Duration kPatience = seconds(60);
constexpr Duration kSilenceLimit = seconds(2);

struct Link {
  UniqueFd ours, theirs;
};

Link NewLink() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// Returns a TCP connection whose remote end has a small receive buffer.
Link NewTcpLink() {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int small = 4096;
  setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), generic, size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), generic, &size), 0);
  Link link;
  link.ours = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(link.ours.get(), generic, size), 0);
  link.theirs = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return link;
}

class TcpMeshTest : public testing::Test {
 protected:
  explicit TcpMeshTest(Link lane = NewLink()) : lane_(std::move(lane)) {
    std::vector<Monitor::Peer> watched;
    watched.push_back({.fd = std::move(control_.ours), .rank = kPeer, .on_other_node = true});
    monitor_.emplace(&segment_, /*local_rank=*/0, kRound, seconds(5), std::move(watched));
    std::vector<TcpMesh::Peer> peers(2);
    mesh_fd_ = lane_.ours.get();
    peers[1] = {.fds = {std::move(lane_.ours), std::move(second_.ours)}, .rank = kPeer};
    mesh_.emplace(std::move(peers), /*local_rank=*/0, kSilenceLimit, &segment_, &*monitor_, &patience_);
  }

  static Call CallOf(uint64_t operation) {
    Call call;
    call.index = operation;
    return call;
  }
  void PostSend(uint64_t chunk, uint64_t operation, int exchange, std::span<char> bytes) {
    mesh_->Post({.call = CallOf(operation), .chunk = chunk, .exchange = exchange},
                {{.node = 1, .parts = {{bytes.data(), bytes.size()}}}}, {});
  }
  void PostReceive(uint64_t chunk, uint64_t operation, int exchange) {
    mesh_->Post({.call = CallOf(operation), .chunk = chunk, .exchange = exchange}, {},
                {{.node = 1, .parts = {{&byte_, 1}}}});
  }
  // Moves messages until those of `chunk` are complete.
  Status Finish(uint64_t chunk) {
    while (true) {
      mesh_->Move();
      if (!mesh_->IsSending(chunk) && !mesh_->IsReceiving(chunk)) return OkStatus();
      DDPRUN_RETURN_IF_ERROR(mesh_->Await(chunk));
    }
  }
  // Receives one byte of `chunk` on another thread, like a lane.
  std::future<Status> StartReceiving(uint64_t chunk) {
    return std::async(std::launch::async, [this, chunk] {
      PostReceive(chunk, 0, 0);
      return Finish(chunk);
    });
  }
  // Sends one byte of `chunk`, like the peer's mesh.
  void SendByte(uint64_t chunk, uint64_t operation = 0, int exchange = 0) {
    const Frame frame{.round = kRound, .chunk = chunk, .num_bytes = 1, .call = CallOf(operation)};
    std::vector<char> message(sizeof(frame) + 1);
    std::memcpy(message.data(), &frame, sizeof(frame));
    const Link& link = exchange == 0 ? lane_ : second_;
    ASSERT_EQ(send(link.theirs.get(), message.data(), message.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(message.size()));
  }
  // Returns true if ended_fd is not readable, which means that the mesh has read it.
  bool EndWasSeen() const {
    pollfd p{.fd = monitor_->ended_fd(), .events = POLLIN, .revents = 0};
    return poll(&p, 1, 0) == 0;
  }

  Link control_ = NewLink(), lane_, second_ = NewLink();
  Segment segment_ = *Segment::Create({.round = kRound, .num_ranks = 1, .num_lanes = 1, .chunk_bytes = 4096});
  Patience patience_;
  std::optional<Monitor> monitor_;
  std::optional<TcpMesh> mesh_;
  int mesh_fd_ = -1;
  char byte_ = 0;
};

// The peer leaves after chunk 0. The peer's kLeft record arrives before its data for chunk 0.
TEST_F(TcpMeshTest, ALeftRecordReceivedDuringOneChunkFailsTheNextChunk) {
  std::future<Status> first = StartReceiving(0);
  const EndRecord left = LeftRecord(kRound, kPeer, /*num_chunks=*/1);
  ASSERT_EQ(send(control_.theirs.get(), &left, sizeof(left), MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof(left)));
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (segment_.EndOf(1).ok() || !EndWasSeen()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::yield();
  }
  SendByte(0);
  ASSERT_EQ(first.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(first.get(), OkStatus());

  std::future<Status> second = StartReceiving(1);
  const bool ended = second.wait_for(seconds(10)) == std::future_status::ready;
  EXPECT_TRUE(ended) << "still waiting for a chunk that never arrives";
  if (!ended) lane_.theirs = UniqueFd();
  EXPECT_EQ(second.get(), UnavailableError("rank 1 of round 7 has left"));
}

// The first exchange of chunk 1 fills the socket's buffers, because the peer does not start chunk 1. The second exchange
// of chunk 0 has its own connection and completes.
TEST_F(TcpMeshTest, TheSecondExchangeDoesNotWaitForTheFirstExchangeOfALaterChunk) {
  std::vector<char> much(4 << 20, 'x');
  PostReceive(0, 0, 1);
  PostSend(1, 1, 0, much);
  mesh_->Move();
  SendByte(0, 0, 1);
  EXPECT_EQ(Finish(0), OkStatus());
  EXPECT_TRUE(mesh_->IsSending(1));
}

// The peer's data of operation 0 might be lost if the peer left with unread data of operation 1.
TEST_F(TcpMeshTest, AnOperationIsSentOnceEarlierOnesAreReceived) {
  std::vector<char> byte(1, 'x');
  PostReceive(0, 0, 0);
  PostSend(1, 1, 0, byte);
  mesh_->Move();
  char buffer[1];
  EXPECT_EQ(recv(lane_.theirs.get(), buffer, 1, MSG_DONTWAIT), -1) << "sent too early";
  SendByte(0);
  EXPECT_EQ(Finish(0), OkStatus());
  EXPECT_EQ(Finish(1), OkStatus());
  EXPECT_EQ(recv(lane_.theirs.get(), buffer, 1, MSG_DONTWAIT), 1);
}

// Chunks of one operation need not wait: no rank leaves in between.
TEST_F(TcpMeshTest, ChunksOfAnOperationAreSentWhileEarlierOnesAreReceived) {
  std::vector<char> byte(1, 'x');
  PostReceive(0, 0, 0);
  PostSend(1, 0, 0, byte);
  mesh_->Move();
  EXPECT_FALSE(mesh_->IsSending(1));
  EXPECT_TRUE(mesh_->IsReceiving(0));
}

// The peer completes chunk 0 and closes its connections instead of starting chunk 1.
TEST_F(TcpMeshTest, ABrokenConnectionFailsOnlyTheChunkThatNeedsIt) {
  PostReceive(0, 0, 1);
  PostReceive(1, 1, 0);
  lane_.theirs = UniqueFd();
  mesh_->Move();
  SendByte(0, 0, 1);
  EXPECT_EQ(Finish(0), OkStatus());
  EXPECT_EQ(Finish(1), UnavailableError("rank 1 of round 7 is gone"));
}

TEST_F(TcpMeshTest, AMessageOfAnotherOperationFailsOnlyItsChunk) {
  PostReceive(0, 0, 1);
  PostReceive(1, 1, 0);
  SendByte(1, /*operation=*/2);
  mesh_->Move();
  SendByte(0, 0, 1);
  EXPECT_EQ(Finish(0), OkStatus());
  EXPECT_EQ(Finish(1).code(), StatusCode::kInvalidArgument);
}

class BusyPeerTest : public TcpMeshTest {
 protected:
  BusyPeerTest() : TcpMeshTest(NewTcpLink()) {}
};

// The peer computes and does not read, so its receive window is closed. Its kernel still sends
// acknowledgements, so the peer does not count as cut off.
TEST_F(BusyPeerTest, APeerThatStopsReadingIsNotCutOff) {
  WatchLink(mesh_fd_, kSilenceLimit, /*in_flight=*/false);
  std::vector<char> much(4 << 20, 'x');
  std::future<Status> sent = std::async(std::launch::async, [&] {
    PostSend(0, 0, 0, much);
    return Finish(0);
  });
  ASSERT_EQ(sent.wait_for(3 * kSilenceLimit), std::future_status::timeout);
  std::vector<char> buffer(1 << 16);
  for (size_t left = sizeof(Frame) + much.size(); left > 0;) {
    const ssize_t n = recv(lane_.theirs.get(), buffer.data(), buffer.size(), 0);
    ASSERT_GT(n, 0);
    left -= static_cast<size_t>(n);
  }
  ASSERT_EQ(sent.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(sent.get(), OkStatus());
}

}  // namespace
}  // namespace ddprun
