// A lane's mesh; the test plays the same lane of the other node.
#include "worker_sdk/comm/host/tcp_mesh.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/time.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/record.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/unique_fd.h"

namespace ddprun {
namespace {

constexpr int64_t kRound = 7;
constexpr int kPeer = 1;
constexpr Duration kPatience = seconds(60);

struct Link {
  UniqueFd ours, theirs;
};

Link NewLink() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

class TcpMeshTest : public testing::Test {
 protected:
  TcpMeshTest() {
    std::vector<Monitor::Peer> watched;
    watched.push_back({.fd = std::move(control_.ours), .rank = kPeer, .on_other_node = true});
    monitor_.emplace(&segment_, /*local_rank=*/0, kRound, std::move(watched));
    std::vector<TcpMesh::Peer> lane(2);
    lane[1] = {.fd = std::move(lane_.ours), .rank = kPeer};
    mesh_.emplace(std::move(lane), /*local_rank=*/0, &segment_, &*monitor_);
  }

  // Receives a byte of `chunk` in a thread of its own, as its lane does.
  std::future<absl::Status> StartReceiving(uint64_t chunk) {
    return std::async(std::launch::async, [this, chunk] {
      std::vector<TcpMesh::Message> receives;
      receives.push_back({.node = 1, .parts = {{&byte_, 1}}});
      return mesh_->Exchange({.call = {}, .chunk = chunk}, {}, std::move(receives),
                             [] { return absl::OkStatus(); });
    });
  }
  // What the peer's mesh sends for it; tcp_mesh.cc and README.md have the frame.
  void SendByte(uint64_t chunk) {
    struct Frame {
      uint64_t magic = 0x31454d4152465044;
      int64_t round = kRound;
      uint64_t chunk = 0;
      uint32_t phase = 0, reserved = 0;
      uint64_t num_bytes = 1;
      Call call;
    };
    Frame frame;
    frame.chunk = chunk;
    std::vector<char> message(sizeof(frame) + 1);
    std::memcpy(message.data(), &frame, sizeof(frame));
    ASSERT_EQ(send(lane_.theirs.get(), message.data(), message.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(message.size()));
  }
  bool EndWasSeen() const {
    pollfd p{.fd = monitor_->ended_fd(), .events = POLLIN, .revents = 0};
    return poll(&p, 1, 0) == 0;
  }

  Link control_ = NewLink(), lane_ = NewLink();
  Segment segment_ = *Segment::Create({.round = kRound, .num_ranks = 1, .num_lanes = 1, .chunk_bytes = 4096});
  std::optional<Monitor> monitor_;
  std::optional<TcpMesh> mesh_;
  char byte_ = 0;
};

// The peer's node leaves after chunk 0, and says so before its part of chunk 0 has come.
TEST_F(TcpMeshTest, ALeaveThatCameDuringAnEarlierChunkEndsTheNextOne) {
  std::future<absl::Status> first = StartReceiving(0);
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
  EXPECT_EQ(first.get(), absl::OkStatus());

  std::future<absl::Status> second = StartReceiving(1);
  const bool ended = second.wait_for(seconds(10)) == std::future_status::ready;
  EXPECT_TRUE(ended) << "it waits for a chunk that never comes";
  if (!ended) lane_.theirs = UniqueFd();
  EXPECT_EQ(second.get(), absl::UnavailableError("rank 1 of round 7 has left"));
}

}  // namespace
}  // namespace ddprun
