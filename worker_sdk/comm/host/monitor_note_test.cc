// Tests how notes about calls spread. The test acts as the peers of a hub, at the other ends of the connections.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/host/monitor.h"
#include "worker_sdk/comm/host/record.h"
#include "worker_sdk/comm/host/segment.h"

namespace ddprun {
namespace {

constexpr int64_t kRound = 7;
constexpr int kFirst = 1, kSecond = 2, kOtherHub = 3, kThirdHub = 5;
const Status kEnd = AbortedError("the end");

CallNote NoteAbout(uint64_t index, uint32_t attempt = 0) {
  CallNote note{.num_calls = 1, .attempt = attempt};
  note.calls[0].index = index;
  return note;
}

// The monitor of rank 0, which is connected to two ranks of its node and two hubs.
class MonitorNoteTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<Monitor::Peer> peers;
    for (const int rank : {kFirst, kSecond, kOtherHub, kThirdHub}) {
      int fds[2] = {-1, -1};
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
      peers_[rank] = UniqueFd(fds[0]);
      peers.push_back({.fd = UniqueFd(fds[1]), .rank = rank, .on_other_node = rank >= kOtherHub});
    }
    monitor_.emplace(&segment_, /*local_rank=*/0, kRound, seconds(5), std::move(peers), nullptr,
                     [this](int /*rank*/, const CallNote& note) {
                       ++num_compared_;
                       return note.last().index == kDiffers ? kEnd : OkStatus();
                     });
  }

  void Send(int peer, const EndRecord& record) {
    ASSERT_EQ(send(peers_[peer].get(), &record, sizeof(record), MSG_NOSIGNAL), ssize_t{sizeof(record)});
  }
  void SendNote(int peer, const CallNote& note) { Send(peer, NoteRecord(kRound, peer, note)); }
  // The records that the monitor sends to the peer, up to the one that ends communication.
  std::vector<EndRecord> ReceiveAll(int peer) {
    std::vector<EndRecord> records;
    while (records.empty() || records.back().kind != EndRecord::kDead) {
      pollfd p{.fd = peers_[peer].get(), .events = POLLIN, .revents = 0};
      EndRecord record;
      if (poll(&p, 1, 60'000) != 1 || recv(p.fd, &record, sizeof(record), 0) != sizeof(record)) {
        ADD_FAILURE() << "rank " << peer << " is not told the end";
        break;
      }
      records.push_back(record);
    }
    return records;
  }
  // The notes among them.
  std::vector<CallNote> NotesOf(int peer) {
    std::vector<CallNote> notes;
    for (const EndRecord& record : ReceiveAll(peer)) {
      if (record.kind == EndRecord::kNote) notes.push_back(*NoteIn(record));
    }
    return notes;
  }
  static constexpr uint64_t kDiffers = 99;
  Segment segment_ = *Segment::Create(
      {.round = kRound, .num_ranks = 3, .num_lanes = 1, .chunk_bytes = 4096, .world_size = 6});
  std::map<int, UniqueFd> peers_;  // by rank: the peer's end of its connection
  std::atomic<int> num_compared_{0};
  std::optional<Monitor> monitor_;
};

using Notes = std::vector<CallNote>;

TEST_F(MonitorNoteTest, APostedNoteReachesAllPeers) {
  monitor_->PostNote(0, NoteAbout(4));
  monitor_->SetDead(kEnd);
  for (const auto& [rank, fd] : peers_) EXPECT_EQ(NotesOf(rank), Notes{NoteAbout(4)}) << rank;
  EXPECT_EQ(num_compared_, 0) << "it is this rank's";
}

TEST_F(MonitorNoteTest, ANoteOfTheNodeIsComparedAndForwardedToAllOthers) {
  SendNote(kFirst, NoteAbout(4));
  Send(kFirst, DeadRecord(kRound, kEnd));
  for (const int rank : {kSecond, kOtherHub, kThirdHub}) {
    const std::vector<EndRecord> records = ReceiveAll(rank);
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(NoteIn(records[0]), NoteAbout(4));
    EXPECT_EQ(records[0].rank, kFirst);
  }
  EXPECT_EQ(num_compared_, 1);
  EXPECT_FALSE(segment_.HasLeft(kFirst));
}

TEST_F(MonitorNoteTest, ANoteOfAnotherNodeStaysOnThisOne) {
  SendNote(kOtherHub, NoteAbout(4));
  Send(kOtherHub, DeadRecord(kRound, kEnd));  // stays on this node, too
  EXPECT_EQ(NotesOf(kFirst), Notes{NoteAbout(4)});
  EXPECT_EQ(NotesOf(kSecond), Notes{NoteAbout(4)});
  monitor_->PostNote(0, NoteAbout(5));
  EndRecord record;
  ASSERT_EQ(recv(peers_[kThirdHub].get(), &record, sizeof(record), MSG_DONTWAIT), ssize_t{sizeof(record)});
  EXPECT_EQ(NoteIn(record), NoteAbout(5));
}

TEST_F(MonitorNoteTest, EqualNotesAreForwardedOnceAndRepeatedOnesAgain) {
  SendNote(kFirst, NoteAbout(4));
  SendNote(kFirst, NoteAbout(4));
  SendNote(kFirst, NoteAbout(4, 1));
  SendNote(kFirst, NoteAbout(5));
  SendNote(kFirst, NoteAbout(4));
  Send(kFirst, DeadRecord(kRound, kEnd));
  EXPECT_EQ(NotesOf(kSecond), (Notes{NoteAbout(4), NoteAbout(4, 1), NoteAbout(5)}));
  EXPECT_EQ(num_compared_, 3);
}

TEST_F(MonitorNoteTest, CallsThatDifferEndCommunicationOnAllRanks) {
  SendNote(kOtherHub, NoteAbout(kDiffers));
  for (const auto& [rank, fd] : peers_) EXPECT_EQ(ReceiveAll(rank).back().status(), kEnd) << rank;
  EXPECT_EQ(segment_.DeadStatus(), kEnd);
}

// A stopped peer must not lose the record that ends communication because of notes.
TEST_F(MonitorNoteTest, APeerThatDoesNotReadGetsFewNotesAndTheEnd) {
  constexpr uint64_t kMany = 1000;
  for (uint64_t i = 0; i < kMany; ++i) {
    if (i == kDiffers) continue;
    SendNote(kFirst, NoteAbout(i));
  }
  Send(kFirst, DeadRecord(kRound, kEnd));
  ReceiveAll(kThirdHub);  // from here on, the monitor has read everything
  const std::vector<CallNote> notes = NotesOf(kSecond);
  EXPECT_GE(notes.size(), 1u);
  EXPECT_LE(notes.size(), 20u);
}

TEST_F(MonitorNoteTest, MalformedNotesAndUnknownRecordsEndNothing) {
  SendNote(kFirst, CallNote());
  Send(kFirst, {.kind = 77, .round = kRound, .num_chunks = 0, .rank = kSecond});
  SendNote(kFirst, NoteAbout(4));
  Send(kFirst, DeadRecord(kRound, kEnd));
  const std::vector<EndRecord> records = ReceiveAll(kSecond);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(NoteIn(records[0]), NoteAbout(4));
  EXPECT_FALSE(segment_.HasLeft(kSecond));
}

}  // namespace
}  // namespace ddprun
