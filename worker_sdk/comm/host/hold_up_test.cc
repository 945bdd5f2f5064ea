// Tests who is named when a deadline passes. The test acts as the other ranks, at the other ends of the monitor's
// connections and in the segment.
#include "worker_sdk/comm/host/hold_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/record.h"
#include "worker_sdk/comm/host/segment.h"
#include "worker_sdk/comm/host/topology.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kRound = 7;
constexpr int kNode = 0;
constexpr int kOtherHub = 3, kOtherRank = 4;

// Node 0 has ranks 0, 1 and 2; node 1 has ranks 3 and 4. The test is about the monitor of one rank of node 0.
class HoldUpTest : public testing::Test {
 protected:
  // Starts the monitor of rank 0, the hub, which is connected to ranks 1, 2 and 3.
  void WatchAsHub() {
    std::vector<Monitor::Peer> peers;
    for (const int rank : {1, 2, kOtherHub}) {
      peers.push_back({.fd = Connect(rank), .rank = rank, .on_other_node = rank == kOtherHub});
    }
    Watch(std::move(peers));
  }
  // Starts the monitor of rank 1, which is connected to its hub.
  void WatchAsRank1() {
    std::vector<Monitor::Peer> peers;
    peers.push_back({.fd = Connect(0), .rank = 0, .on_other_node = false});
    local_rank_ = 1;
    Watch(std::move(peers));
  }

  void Send(int peer, const EndRecord& record) {
    ASSERT_EQ(send(peers_[peer].get(), &record, sizeof(record), MSG_NOSIGNAL), ssize_t{sizeof(record)});
  }
  // The next record that the monitor sends to the peer.
  std::optional<EndRecord> Receive(int peer) {
    pollfd p{.fd = peers_[peer].get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&p, 1, 60'000), 1) << "no record for rank " << peer;
    EndRecord record;
    if (recv(p.fd, &record, sizeof(record), MSG_WAITALL) != sizeof(record)) return std::nullopt;
    return record;
  }
  // What a rank of another node answers, as its hub forwards it; returns once the monitor has read it.
  void AnswerFromOtherNode(int rank, bool waits = true) {
    EndRecord answer = AnswerRecord(kRound, waits);
    if (rank != kOtherHub) answer.rank = rank;
    Send(kOtherHub, answer);
    Await([&] { return segment_.HasRemoteAnswer(rank); });
  }
  void AnswerFromThisNode(std::vector<int> ranks) {
    for (const int rank : ranks) segment_.SetLocalAnswer(rank);
  }
  void Leave(int rank) {
    Send(rank == kOtherRank ? kOtherHub : rank, LeftRecord(kRound, rank, /*num_chunks=*/9));
    Await([&] { return segment_.HasLeft(rank); });
  }

  std::vector<int> DoNotAnswer() {
    return RanksThatDoNotAnswer(topology_, kNode, local_rank_, segment_, &*monitor_);
  }
  std::vector<int> HoldUp() { return RanksThatHoldUp(topology_, kNode, local_rank_, segment_, &*monitor_); }
  // Makes a rank of this node wait for a peer; otherwise the rank counts as one that computes.
  void MakeWait(std::vector<int> ranks, int peer) {
    for (const int rank : ranks) segment_.SetAwaitedPeer(rank, peer);
  }

  Topology topology_{.nodes = {{0, 3}, {3, 5}}};
  Segment segment_ = *Segment::Create(
      {.round = kRound, .num_ranks = 3, .num_lanes = 2, .chunk_bytes = 4096, .world_size = 5});
  std::vector<UniqueFd> peers_{5};  // by rank: the peer's end of its connection
  int local_rank_ = 0;
  std::optional<Monitor> monitor_;

 private:
  UniqueFd Connect(int rank) {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    peers_[rank] = UniqueFd(fds[0]);
    return UniqueFd(fds[1]);
  }
  void Watch(std::vector<Monitor::Peer> peers) {
    monitor_.emplace(&segment_, local_rank_, kRound, seconds(5), std::move(peers));
  }
  template <typename Condition>
  void Await(Condition condition) {
    const TimePoint deadline = std::chrono::steady_clock::now() + seconds(60);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
};

TEST_F(HoldUpTest, AskReachesTheNodeAndTheOtherHubsOnce) {
  WatchAsHub();
  for (int i = 0; i < 2; ++i) DoNotAnswer();
  monitor_->SetDead(AbortedError("the end"));
  for (const int peer : {1, 2, kOtherHub}) {
    SCOPED_TRACE(peer);
    std::optional<EndRecord> record = Receive(peer);
    ASSERT_TRUE(record);
    EXPECT_EQ(record->kind, EndRecord::kAsk);
    record = Receive(peer);
    ASSERT_TRUE(record);
    if (peer == kOtherHub) {  // the hub's own answer
      EXPECT_EQ(record->kind, EndRecord::kAnswer);
      record = Receive(peer);
      ASSERT_TRUE(record);
    }
    EXPECT_EQ(record->kind, EndRecord::kDead);
  }
}

TEST_F(HoldUpTest, ARankAnswersThroughItsHub) {
  WatchAsRank1();
  MakeWait({1}, kOtherHub);
  Send(0, AskRecord(kRound));
  const std::optional<EndRecord> record = Receive(0);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->kind, EndRecord::kAnswer);
  EXPECT_EQ(record->num_chunks, 1) << "it waits";
  EXPECT_TRUE(segment_.HasLocalAnswer(1));
  EXPECT_FALSE(segment_.HasLocalAnswer(0));
}

TEST_F(HoldUpTest, AHubForwardsTheAnswersOfItsNode) {
  WatchAsHub();
  Send(2, AnswerRecord(kRound, /*waits=*/false));
  std::optional<EndRecord> record = Receive(kOtherHub);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->kind, EndRecord::kAnswer);
  EXPECT_EQ(record->rank, 2);
  EXPECT_EQ(record->num_chunks, 0);
  // An answer of another node stays on this one.
  AnswerFromOtherNode(kOtherRank);
  monitor_->SetDead(AbortedError("the end"));
  record = Receive(kOtherHub);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->kind, EndRecord::kDead);
}

TEST_F(HoldUpTest, NobodyIsNamedIfAllAnswer) {
  WatchAsHub();
  AnswerFromThisNode({1, 2});
  AnswerFromOtherNode(kOtherHub);
  AnswerFromOtherNode(kOtherRank);
  EXPECT_THAT(DoNotAnswer(), IsEmpty());
}

TEST_F(HoldUpTest, NamesARankOfThisNode) {
  WatchAsHub();
  AnswerFromThisNode({1});
  AnswerFromOtherNode(kOtherHub);
  AnswerFromOtherNode(kOtherRank);
  EXPECT_THAT(DoNotAnswer(), ElementsAre(2));
  EXPECT_THAT(HoldUp(), ElementsAre(2));
}

TEST_F(HoldUpTest, NamesTheHubOfAnotherNodeAndNotTheRanksBehindIt) {
  WatchAsHub();
  AnswerFromThisNode({1, 2});
  EXPECT_THAT(DoNotAnswer(), ElementsAre(kOtherHub));
}

TEST_F(HoldUpTest, NamesAnotherRankOfAnotherNode) {
  WatchAsHub();
  AnswerFromThisNode({1, 2});
  AnswerFromOtherNode(kOtherHub);
  EXPECT_THAT(DoNotAnswer(), ElementsAre(kOtherRank));
}

TEST_F(HoldUpTest, NamesAllThatDoNotAnswer) {
  WatchAsHub();
  AnswerFromThisNode({2});
  AnswerFromOtherNode(kOtherHub);
  EXPECT_THAT(DoNotAnswer(), ElementsAre(1, kOtherRank));
}

// The answers of other nodes come through the hub.
TEST_F(HoldUpTest, NamesOnlyTheOwnHubIfItDoesNotAnswer) {
  WatchAsRank1();
  AnswerFromThisNode({2});
  EXPECT_THAT(DoNotAnswer(), ElementsAre(0));
}

TEST_F(HoldUpTest, NamesRanksAsInTheWorld) {
  topology_.world_ranks = {0, 2, 4, 3, 1};
  WatchAsHub();
  AnswerFromThisNode({1});
  AnswerFromOtherNode(kOtherHub);
  AnswerFromOtherNode(1);
  EXPECT_THAT(DoNotAnswer(), ElementsAre(4));
}

TEST_F(HoldUpTest, ARankThatHasLeftNeedNotAnswer) {
  WatchAsHub();
  AnswerFromThisNode({1});
  Leave(2);
  AnswerFromOtherNode(kOtherHub);
  Leave(kOtherRank);
  EXPECT_THAT(DoNotAnswer(), IsEmpty());
}

TEST_F(HoldUpTest, TheRanksBehindAHubThatHasLeftCannotBeAsked) {
  WatchAsHub();
  AnswerFromThisNode({1, 2});
  Leave(kOtherHub);
  EXPECT_THAT(DoNotAnswer(), IsEmpty());
}

TEST_F(HoldUpTest, NobodyIsNamedAfterCommunicationHasEnded) {
  WatchAsHub();
  monitor_->SetDead(AbortedError("enough"));
  EXPECT_THAT(DoNotAnswer(), IsEmpty());
  EXPECT_THAT(HoldUp(), IsEmpty());
}

TEST_F(HoldUpTest, NamesTheRanksThatDoNotWaitIfAllAnswer) {
  WatchAsHub();
  AnswerFromThisNode({1, 2});
  MakeWait({0, 2}, kOtherHub);
  AnswerFromOtherNode(kOtherHub, /*waits=*/true);
  AnswerFromOtherNode(kOtherRank, /*waits=*/false);
  EXPECT_THAT(HoldUp(), ElementsAre(1, kOtherRank));
}

// For example ranks that wait for each other because their calls differ.
TEST_F(HoldUpTest, NamesTheAwaitedPeersIfAllWait) {
  WatchAsHub();
  AnswerFromThisNode({1, 2});
  MakeWait({0}, kOtherHub);
  MakeWait({1, 2}, kOtherRank);
  AnswerFromOtherNode(kOtherHub);
  AnswerFromOtherNode(kOtherRank);
  const std::vector<int> named = HoldUp();
  EXPECT_THAT(std::set<int>(named.begin(), named.end()), ElementsAre(kOtherHub, kOtherRank));
}

}  // namespace
}  // namespace ddprun
