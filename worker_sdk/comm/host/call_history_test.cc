#include "worker_sdk/comm/host/call_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/comm/host/record.h"

namespace ddprun {
namespace {

using internal::Call;
using internal::OpKind;
using ::testing::HasSubstr;

Call AllReduce(uint64_t index, uint64_t num_elems = 4) {
  return {.kind = OpKind::kAllReduce, .dtype = DType::kFloat32, .index = index, .num_bytes = 4 * num_elems};
}

// A history of `n` equal calls, and then the calls `more`.
CallHistory HistoryOf(uint64_t n, const std::vector<Call>& more = {}) {
  CallHistory history;
  for (uint64_t i = 0; i < n; ++i) history.Add(AllReduce(i));
  for (const Call& call : more) history.Add(call);
  return history;
}

TEST(CallHistoryTest, ANoteHasTheCallAndThoseBeforeIt) {
  const CallHistory history = HistoryOf(10);
  const std::optional<CallNote> note = history.NoteOf(8);
  ASSERT_TRUE(note);
  ASSERT_EQ(note->num_calls, CallNote::kMaxCalls);
  for (uint32_t i = 0; i < note->num_calls; ++i) EXPECT_EQ(note->calls[i], AllReduce(3 + i));
  EXPECT_EQ(note->last(), AllReduce(8));
  EXPECT_EQ(history.NoteOf(1)->num_calls, 2u);
  EXPECT_FALSE(history.NoteOf(10));
  EXPECT_FALSE(CallHistory().NoteOf(0));
}

TEST(CallHistoryTest, ANoteHasOnlyCallsThatAreKnown) {
  constexpr uint64_t kCapacity = CallHistory::kCapacity;
  const CallHistory history = HistoryOf(kCapacity + 3);  // the oldest is call 3
  EXPECT_FALSE(history.NoteOf(2));
  EXPECT_EQ(history.NoteOf(3)->num_calls, 1u);
  EXPECT_EQ(history.NoteOf(4)->num_calls, 2u);
  EXPECT_EQ(history.NoteOf(kCapacity + 2)->num_calls, CallNote::kMaxCalls);
}

TEST(CallHistoryTest, EqualCallsAreEqualWhereverTheRanksAre) {
  for (const uint64_t own : {0, 1, 5, 7, 20, 2000}) {
    for (const uint64_t other : {1, 5, 6, 7, 20, 2000}) {
      EXPECT_FALSE(HistoryOf(own).Compare(*HistoryOf(other).NoteOf(other - 1))) << own << " and " << other;
    }
  }
}

TEST(CallHistoryTest, FindsTheFirstCallThatDiffers) {
  const Call different[] = {
      AllReduce(7, 5),
      {.kind = OpKind::kAllGather, .dtype = DType::kFloat32, .index = 7, .num_bytes = 16},
      {.kind = OpKind::kAllReduce, .dtype = DType::kInt32, .index = 7, .num_bytes = 16},
      {.kind = OpKind::kAllReduce,
       .dtype = DType::kFloat32,
       .op = ReduceOp::kMax,
       .index = 7,
       .num_bytes = 16},
      {.kind = OpKind::kAllReduce, .dtype = DType::kFloat32, .root = 1, .index = 7, .num_bytes = 16},
  };
  for (const Call& call : different) {
    SCOPED_TRACE(Describe(call));
    const CallHistory own = HistoryOf(12);
    const CallHistory other = HistoryOf(7, {call, AllReduce(8), AllReduce(9)});
    for (uint64_t last = 7; last < 10; ++last) {
      const auto difference = own.Compare(*other.NoteOf(last));
      ASSERT_TRUE(difference);
      EXPECT_EQ(difference->own, AllReduce(7));
      EXPECT_EQ(difference->other, call);
      EXPECT_FALSE(difference->earlier);
    }
    EXPECT_FALSE(own.Compare(*other.NoteOf(6)));
    EXPECT_FALSE(HistoryOf(7).Compare(*other.NoteOf(9))) << "this rank has not made the call";
  }
}

TEST(CallHistoryTest, FindsADifferenceBeforeTheCallsOfTheNote) {
  CallHistory other = HistoryOf(2, {AllReduce(2, 99)});
  for (uint64_t i = 3; i < 20; ++i) other.Add(AllReduce(i));
  const auto difference = HistoryOf(30).Compare(*other.NoteOf(19));
  ASSERT_TRUE(difference);
  EXPECT_TRUE(difference->earlier);
  EXPECT_EQ(difference->own, AllReduce(14));
}

TEST(CallHistoryTest, SaysNothingAboutCallsThatItHasForgotten) {
  const CallHistory other = HistoryOf(3, {AllReduce(3, 99)});
  EXPECT_TRUE(HistoryOf(CallHistory::kCapacity + 3).Compare(*other.NoteOf(3)));
  EXPECT_FALSE(HistoryOf(CallHistory::kCapacity + 4).Compare(*other.NoteOf(3)));
}

TEST(CallComparisonTest, TheErrorNamesBothRanksAndBothCalls) {
  CallComparison own(7, 3, "GPU operation"), other(7, 1, "GPU operation");
  EXPECT_EQ(own.Add(AllReduce(0)), OkStatus());
  EXPECT_EQ(other.Add(AllReduce(0, 5)), OkStatus());
  const Status status = own.Receive(1, *other.NoteOf(0));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "the calls of round 7 differ: GPU operation 0 of rank 3 is all-reduce (sum) of 4 float32, GPU "
            "operation 0 of rank 1 is all-reduce (sum) of 5 float32");
}

TEST(CallComparisonTest, ANoteIsComparedWhenTheCallIsMade) {
  CallComparison own(7, 0, "GPU operation"), other(7, 1, "GPU operation");
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(other.Add(AllReduce(i, i == 2 ? 5 : 4)), OkStatus());
  EXPECT_EQ(own.Receive(1, *other.NoteOf(2)), OkStatus());
  EXPECT_EQ(own.Add(AllReduce(0)), OkStatus());
  EXPECT_EQ(own.Add(AllReduce(1)), OkStatus());
  EXPECT_THAT(own.Add(AllReduce(2)).message(), HasSubstr("GPU operation 2 of rank 1"));
}

TEST(CallComparisonTest, ACallOfThePastIsComparedWhenTheNoteArrivesAndNotAgain) {
  CallComparison own(7, 0, "GPU operation"), other(7, 1, "GPU operation");
  EXPECT_EQ(other.Add(AllReduce(0)), OkStatus());
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(own.Add(AllReduce(i, i == 0 ? 5 : 4)), OkStatus());
  EXPECT_EQ(own.Receive(1, *other.NoteOf(0)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(own.Add(AllReduce(3)), OkStatus());
}

// Of several ranks, the one that waits for the earliest call has the note that can be compared first.
TEST(CallComparisonTest, KeepsTheNoteOfTheEarliestCall) {
  CallComparison behind(7, 1, "GPU operation"), ahead(7, 2, "GPU operation");
  for (uint64_t i = 0; i < 2; ++i) EXPECT_EQ(behind.Add(AllReduce(i, i == 1 ? 5 : 4)), OkStatus());
  for (uint64_t i = 0; i < 9; ++i) EXPECT_EQ(ahead.Add(AllReduce(i)), OkStatus());
  for (const bool first : {true, false}) {
    CallComparison own(7, 0, "GPU operation");
    if (first) {
      EXPECT_EQ(own.Receive(1, *behind.NoteOf(1)), OkStatus());
    }
    EXPECT_EQ(own.Receive(2, *ahead.NoteOf(8)), OkStatus());
    if (!first) {
      EXPECT_EQ(own.Receive(1, *behind.NoteOf(1)), OkStatus());
    }
    EXPECT_EQ(own.Add(AllReduce(0)), OkStatus());
    EXPECT_THAT(own.Add(AllReduce(1)).message(), HasSubstr("GPU operation 1 of rank 1"));
  }
}

TEST(CallComparisonTest, ADifferenceThatIsForgottenHasTheLastCalls) {
  CallComparison own(7, 0, "GPU operation"), other(7, 1, "GPU operation");
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(own.Add(AllReduce(i)), OkStatus());
    EXPECT_EQ(other.Add(AllReduce(i, i == 2 ? 5 : 4)), OkStatus());
  }
  EXPECT_EQ(
      own.Receive(1, *other.NoteOf(19)).message(),
      "the calls of round 7 differ before GPU operation 14: rank 0 and rank 1 have made other calls than "
      "each other. That one is all-reduce (sum) of 4 float32 on rank 0 and all-reduce (sum) of 4 float32 on "
      "rank 1");
}

TEST(NoteRecordTest, ANoteSurvivesItsRecord) {
  const CallNote note = *HistoryOf(9).NoteOf(8);
  const EndRecord record = NoteRecord(7, 3, note);
  EXPECT_EQ(record.kind, EndRecord::kNote);
  EXPECT_EQ(record.rank, 3);
  EXPECT_EQ(NoteIn(record), note);
}

TEST(NoteRecordTest, RefusesNotesWithoutCallsAndWithTooMany) {
  CallNote note = *HistoryOf(9).NoteOf(8);
  for (const uint32_t n : {0u, CallNote::kMaxCalls + 1, UINT32_MAX}) {
    note.num_calls = n;
    EXPECT_FALSE(NoteIn(NoteRecord(7, 3, note))) << n;
  }
}

}  // namespace
}  // namespace ddprun
