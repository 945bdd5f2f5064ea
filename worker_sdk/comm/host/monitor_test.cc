// Tests a hub's monitor. The test acts as the hub's peers, at the other ends of the connections, and produces
// event orders that are rare in production.
#include "worker_sdk/comm/host/monitor.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/record.h"
#include "worker_sdk/comm/host/segment.h"

namespace ddprun {
namespace {

constexpr int64_t kRound = 7;
constexpr int kHub = 2, kFirst = 3, kSecond = 4, kOtherHub = 0;
constexpr uint64_t kChunks = 12;
constexpr Duration kPatience = seconds(60);

struct Link {
  UniqueFd hub, peer;
};

Link UnixLink() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

Link TcpLink() {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(listener.get(), generic, size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), generic, &size), 0);
  Link link;
  link.peer = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(link.peer.get(), generic, size), 0);
  link.hub = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return link;
}

void Send(const UniqueFd& fd, const EndRecord& record) {
  ASSERT_EQ(send(fd.get(), &record, sizeof(record), MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(record)));
}

// Returns the next record that the hub sends; nullopt if the hub has closed its side.
std::optional<EndRecord> Receive(const UniqueFd& fd) {
  pollfd p{.fd = fd.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&p, 1, static_cast<int>(ToMillis(kPatience))), 1) << "no record from the hub";
  EndRecord record;
  if (recv(fd.get(), &record, sizeof(record), MSG_WAITALL) != sizeof(record)) return std::nullopt;
  return record;
}

void ExpectLeft(const std::optional<EndRecord>& record, int rank) {
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->kind, EndRecord::kLeft) << record->status();
  EXPECT_EQ(record->rank, rank);
}

class MonitorTest : public testing::TestWithParam<Link (*)()> {
 protected:
  // Starts the monitor with the hub's side of the links to kFirst and, if `second` is not null, to kSecond.
  void Watch(Link* first, Link* second = nullptr) {
    std::vector<Monitor::Peer> peers;
    peers.push_back({.fd = std::move(first->hub), .rank = kFirst, .on_other_node = false});
    if (second != nullptr) {
      peers.push_back({.fd = std::move(second->hub), .rank = kSecond, .on_other_node = false});
    }
    monitor_.emplace(&segment_, /*local_rank=*/0, kRound, seconds(5), std::move(peers));
  }

  Segment segment_ = *Segment::Create({.round = kRound, .num_ranks = 3, .num_lanes = 1, .chunk_bytes = 4096});
  std::optional<Monitor> monitor_;
};

INSTANTIATE_TEST_SUITE_P(, MonitorTest, testing::Values(&UnixLink, &TcpLink),
                         [](const auto& info) { return info.param == &UnixLink ? "Unix" : "Tcp"; });

// Closing a connection with unread input resets the connection. On a unix socket, the reset is reported
// before data that was sent earlier.
TEST_P(MonitorTest, ALeaverWithUnreadInputIsNotDead) {
  Link first = GetParam()(), second = UnixLink();
  Send(first.hub, LeftRecord(kRound, kOtherHub, kChunks));
  Send(first.peer, LeftRecord(kRound, kFirst, kChunks));
  first.peer = UniqueFd();
  Watch(&first, &second);

  ExpectLeft(Receive(second.peer), kFirst);
  Send(second.peer, LeftRecord(kRound, kSecond, kChunks));
  second.peer = UniqueFd();
  monitor_->Leave(kHub, kChunks, kPatience);  // returns once both connections have ended
  EXPECT_EQ(segment_.DeadStatus(), OkStatus());
  EXPECT_EQ(segment_.EndOf(kChunks - 1), OkStatus());
  EXPECT_EQ(segment_.EndOf(kChunks).code(), StatusCode::kUnavailable);
}

TEST_P(MonitorTest, APeerThatExitsWithoutLeavingIsDeadEvenWithUnreadInput) {
  Link first = GetParam()(), second = UnixLink();
  Send(first.hub, LeftRecord(kRound, kOtherHub, kChunks));
  first.peer = UniqueFd();
  Watch(&first, &second);

  const std::optional<EndRecord> record = Receive(second.peer);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->kind, EndRecord::kDead);
  EXPECT_EQ(record->status(), GoneError(kFirst, kRound));
  EXPECT_EQ(segment_.DeadStatus(), GoneError(kFirst, kRound));
}

TEST_P(MonitorTest, LeaveReturnsWhenThePeersHaveReadTheRecord) {
  Link first = GetParam()(), second = UnixLink();
  Watch(&first, &second);
  std::atomic<bool> answered = false;
  std::thread peers([&] {
    for (const UniqueFd* fd : {&first.peer, &second.peer}) {
      ExpectLeft(Receive(*fd), kHub);
      EXPECT_FALSE(Receive(*fd).has_value());
    }
    answered = true;
    first.peer = UniqueFd();
    second.peer = UniqueFd();
  });
  monitor_->Leave(kHub, kChunks, kPatience);
  EXPECT_TRUE(answered);
  peers.join();
  // The peers exited without leaving. A rank that has left does not treat this as a death.
  EXPECT_EQ(segment_.DeadStatus(), OkStatus());
}

TEST_P(MonitorTest, ForwardsALeftRecordOnlyIfItIsTheEarliestSoFar) {
  Link first = GetParam()(), second = UnixLink();
  Watch(&first, &second);
  Send(first.peer, LeftRecord(kRound, /*rank=*/10, kChunks));
  Send(first.peer, LeftRecord(kRound, /*rank=*/11, kChunks));
  Send(first.peer, LeftRecord(kRound, /*rank=*/12, kChunks - 1));
  ExpectLeft(Receive(second.peer), 10);
  ExpectLeft(Receive(second.peer), 12);
  monitor_->Leave(kHub, kChunks, milliseconds(1));  // the hub's own record is always sent
  ExpectLeft(Receive(second.peer), kHub);
}

// All ranks that detect a death report it to their hub, so a hub receives several reports of the same death.
TEST_P(MonitorTest, ForwardsADeathOnce) {
  Link first = GetParam()(), second = UnixLink();
  Watch(&first, &second);
  const Status why = GoneError(kOtherHub, kRound);
  for (int i = 0; i < 3; ++i) Send(first.peer, DeadRecord(kRound, why));
  Send(first.peer, LeftRecord(kRound, kFirst, kChunks));
  const std::optional<EndRecord> record = Receive(second.peer);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->status(), why);
  ExpectLeft(Receive(second.peer), kFirst);
}

// Two ranks of a node give up one after the other. What the second one then finds, with an ended neighbor, is no reason.
TEST_P(MonitorTest, SendsTheFirstReasonOfItsNode) {
  Link first = GetParam()();
  Watch(&first);
  const Status why = DeadlineExceededError("waiting for rank 9");
  ASSERT_TRUE(segment_.SetDead(/*local_rank=*/1, DeadRecord(kRound, why)));
  monitor_->SetDead(DeadlineExceededError("waiting for rank 3"));
  const std::optional<EndRecord> record = Receive(first.peer);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->status(), why);
}

TEST_P(MonitorTest, AcknowledgesALeavingPeer) {
  Link first = GetParam()();
  Watch(&first);
  Send(first.peer, LeftRecord(kRound, kFirst, kChunks));
  ASSERT_EQ(shutdown(first.peer.get(), SHUT_WR), 0);
  EXPECT_FALSE(Receive(first.peer).has_value());
  EXPECT_EQ(segment_.DeadStatus(), OkStatus());
}

TEST_P(MonitorTest, LeaveTimesOutWhenAPeerDoesNotAnswer) {
  Link first = GetParam()();
  Watch(&first);
  monitor_->Leave(kHub, kChunks, milliseconds(1));
  ExpectLeft(Receive(first.peer), kHub);
}

}  // namespace
}  // namespace ddprun
