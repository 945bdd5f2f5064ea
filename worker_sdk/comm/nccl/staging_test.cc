#include "worker_sdk/comm/nccl/staging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "worker_sdk/comm/nccl/staging_windows.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using Kind = StagingAction::Kind;

const TimePoint kNow = TimePoint() + seconds(1000);

// Messages of 25 bytes in pieces of 10.
StagingView Of(bool sends, uint64_t num_copied, uint64_t num_moved) {
  return {.sends = sends,
          .num_bytes = 25,
          .piece_bytes = 10,
          .stream_reached = true,
          .num_copied = num_copied,
          .num_moved = num_moved};
}
StagingView Send(uint64_t num_copied, uint64_t num_moved) { return Of(true, num_copied, num_moved); }
StagingView Receive(uint64_t num_copied, uint64_t num_moved) { return Of(false, num_copied, num_moved); }

// "stream": not reached; "copying", "copied": a copy is in flight, has finished; "sent", "failed": the host backend has finished;
// "device", "lost": an error; "ended", "ended long ago": the fabric; "late", "gave up": the deadline.
StagingView With(StagingView view, const std::string& changes) {
  const std::vector<std::string> parts = StrSplit(changes, ',');
  const auto has = [&](const char* part) { return std::ranges::find(parts, part) != parts.end(); };
  view.stream_reached = !has("stream");
  view.copying = has("copying") || has("copied");
  view.copy_finished = has("copied");
  view.host_finished = has("sent") || has("failed");
  if (has("failed")) view.host_result = UnavailableError("peer");
  if (has("device") || has("lost")) view.device_error = DataLossError("device");
  view.device_lost = has("lost");
  view.fabric_ended = has("ended") || has("ended long ago");
  if (view.fabric_ended) view.fabric_error = AbortedError("fabric");
  view.ended_since = has("ended long ago") ? kNow - kCopyLimit : kNow - milliseconds(1);
  if (has("late")) view.deadline = kNow;
  view.gave_up = has("gave up");
  return view;
}

std::string ToText(const StagingView& view) {
  const StagingAction action = DecideStaging(view, kNow);
  switch (action.kind) {
    case Kind::kNone:
      return "nothing";
    case Kind::kCount:
      return "count";
    case Kind::kCopy:
      return StrCat("copy ", view.num_copied, "-", EndOfPiece(view));
    case Kind::kFinish:
      return StrCat("finish ", action.status.ok() ? "OK" : action.status.message());
    case Kind::kGiveUp:
      return "give up";
    case Kind::kGiveUpStream:
      return "give up stream";
    case Kind::kEndFabric:
      return StrCat("end ", action.status.message());
  }
  return "unknown";
}

struct Case {
  StagingView view;
  const char* changes;
  const char* expected;
};

void Check(std::initializer_list<Case> cases) {
  for (const Case& c : cases) {
    EXPECT_EQ(ToText(With(c.view, c.changes)), c.expected)
        << (c.view.sends ? "send" : "receive") << ", copied " << c.view.num_copied << ", moved "
        << c.view.num_moved << ", " << c.changes;
  }
}

TEST(StagingTest, PiecesAreCopiedWhenTheWindowHasRoomOrHasThem) {
  Check({{Send(0, 0), "", "copy 0-10"},
         {Send(0, 0), "stream", "nothing"},
         {Send(0, 0), "copying", "nothing"},
         {Send(0, 0), "copied", "count"},
         {Send(10, 0), "", "copy 10-20"},
         {Send(20, 0), "", "nothing"},
         {Send(20, 4), "", "nothing"},
         {Send(20, 5), "", "copy 20-25"},
         {Send(25, 24), "", "nothing"},
         {Send(25, 25), "sent", "finish OK"},
         {Receive(0, 0), "", "nothing"},
         {Receive(0, 9), "", "nothing"},
         {Receive(0, 10), "", "copy 0-10"},
         {Receive(0, 20), "stream", "nothing"},
         {Receive(0, 20), "copying", "nothing"},
         {Receive(0, 20), "copied", "count"},
         {Receive(20, 24), "", "nothing"},
         {Receive(20, 25), "sent", "copy 20-25"},
         {Receive(20, 25), "sent,copying", "nothing"},
         {Receive(25, 25), "sent", "finish OK"}});
  EXPECT_EQ(NumReady(Send(10, 3)), 10);
  EXPECT_EQ(NumReady(Receive(0, 0)), 20);
  EXPECT_EQ(NumReady(Receive(10, 10)), 25);
}

TEST(StagingTest, ErrorsWaitForTheCopyInFlight) {
  Check({{Send(10, 3), "failed", "finish peer"},
         {Send(10, 3), "failed,ended", "finish peer"},
         {Send(10, 3), "failed,copying", "nothing"},
         {Send(10, 3), "failed,copying,ended", "nothing"},
         {Send(10, 3), "failed,copied", "finish peer"},
         {Receive(0, 20), "failed,copying,ended long ago",
          "finish peer; a copy on the GPU has not finished since, so it may still access the memory of the "
          "operation: exit the process"},
         // The window is in use.
         {Send(20, 3), "ended", "nothing"},
         {Send(20, 3), "ended long ago", "nothing"},
         // What has arrived is there.
         {Receive(20, 25), "sent,ended", "copy 20-25"},
         {Receive(25, 25), "sent,ended", "finish OK"},
         {Receive(0, 25), "sent,ended,stream", "finish fabric"}});
}

TEST(StagingTest, ErrorsOfTheDevice) {
  Check({{Send(10, 3), "device", "end device"},
         {Send(10, 3), "lost,copying", "end device"},
         {Send(10, 3), "device,ended", "nothing"},
         {Send(10, 3), "device,ended,failed", "finish fabric"},
         {Send(10, 3), "device,ended,failed,copying", "nothing"},
         {Send(10, 3), "device,ended,failed,copied", "finish fabric"},
         {Send(10, 3), "lost,ended,failed,copying", "finish fabric"},
         {Receive(0, 25), "lost,ended,sent,copying", "finish fabric"}});
}

TEST(StagingTest, Deadlines) {
  Check({{Send(20, 0), "late", "give up"},
         {Send(0, 0), "late,stream", "give up"},
         {Send(20, 0), "late,gave up", "nothing"},
         {Send(10, 0), "late", "copy 10-20"},
         {Send(20, 0), "late,copying", "nothing"},
         {Receive(0, 3), "late", "give up"},
         {Receive(0, 25), "late,sent,stream", "give up stream"},
         {Receive(0, 25), "late,sent", "copy 0-10"},
         {Send(20, 0), "late,ended", "nothing"},
         {Receive(0, 25), "late,sent,stream,ended", "finish fabric"},
         {Send(20, 0), "late,device", "end device"}});
}

// A payload of bytes goes through the windows of both ends, with all speeds of the copies and of the host backend.
TEST(StagingTest, BothEndsTogetherMoveThePayload) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const uint64_t n = random() % 60;
    std::string payload(n, ' '), result(n, '?');
    for (char& c : payload) c = static_cast<char>('a' + random() % 26);
    struct End {
      StagingView view;
      std::string window, *memory;
    } ends[2];
    for (End& end : ends) {
      end.view = {.sends = &end == &ends[0], .num_bytes = n, .piece_bytes = 1 + random() % 12};
      end.window.assign(2 * end.view.piece_bytes, '?');
      end.memory = end.view.sends ? &payload : &result;
    }
    auto& [sender, receiver] = ends;
    std::set<const End*> finished;
    for (int i = 0; finished.size() < 2; ++i) {
      ASSERT_LT(i, 10'000);
      if (random() % 2 == 0) {  // the host backend moves a byte
        const uint64_t at = sender.view.num_moved;
        if (at < std::min(NumReady(sender.view), NumReady(receiver.view))) {
          receiver.window[at % receiver.window.size()] = sender.window[at % sender.window.size()];
          for (End& end : ends) ++end.view.num_moved;
        }
        for (End& end : ends) end.view.host_finished = sender.view.num_moved == n;
        continue;
      }
      End& end = ends[random() % 2];
      if (finished.contains(&end)) continue;
      StagingView& view = end.view;
      view.stream_reached = view.stream_reached || random() % 8 == 0;
      view.copy_finished = view.copying && random() % 2 == 0;
      const StagingAction action = DecideStaging(view, kNow);
      if (action.kind == Kind::kCopy) {
        view.copying = true;
        for (uint64_t k = view.num_copied; k < EndOfPiece(view); ++k) {
          char &in_window = end.window[k % end.window.size()], &in_memory = (*end.memory)[k];
          view.sends ? in_window = in_memory : in_memory = in_window;
        }
      } else if (action.kind == Kind::kCount) {
        view.num_copied = EndOfPiece(view);
        view.copying = false;
      } else if (action.kind == Kind::kFinish) {
        EXPECT_EQ(action.status, OkStatus());
        finished.insert(&end);
      }
    }
    EXPECT_EQ(result, payload);
  }
}

TEST(StagingWindowsTest, EachQueueHasAWindowAndTheFirstLargeMessagesHaveLargeOnes) {
  constexpr int kQueues = 14;
  std::vector<char> memory(StagingWindows::NumBytes(kQueues));
  StagingWindows windows(memory, kQueues);
  std::vector<std::span<char>> taken;
  int num_large = 0;
  for (int queue = 0; queue < kQueues; ++queue) {
    taken.push_back(windows.Take(queue, 10'000'000));
    num_large += taken.back().size() == StagingWindows::kLargeBytes;
  }
  EXPECT_EQ(num_large, StagingWindows::kMaxLarge);
  std::sort(taken.begin(), taken.end(), [](auto a, auto b) { return a.data() < b.data(); });
  for (size_t i = 1; i < taken.size(); ++i)
    EXPECT_LE(taken[i - 1].data() + taken[i - 1].size(), taken[i].data());
  EXPECT_GE(taken.front().data(), memory.data());
  EXPECT_LE(taken.back().data() + taken.back().size(), memory.data() + memory.size());
  for (const auto window : taken) windows.Release(window);
  EXPECT_EQ(windows.Take(3, 1).size(), StagingWindows::kSmallBytes);
  EXPECT_EQ(windows.Take(4, 10'000'000).size(), StagingWindows::kLargeBytes);
}

TEST(StagingWindowsTest, MemoryIsBounded) {
  EXPECT_EQ(StagingWindows::NumBytes(0), 0);
  EXPECT_EQ(StagingWindows::NumBytes(2), (2 << 20) + (64 << 10));
  EXPECT_EQ(StagingWindows::NumBytes(2 * 511), (8 << 20) + 511 * (64 << 10));
}

}  // namespace
}  // namespace ddprun
