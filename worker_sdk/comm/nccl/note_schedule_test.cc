#include "worker_sdk/comm/nccl/note_schedule.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace ddprun {
namespace {

constexpr TimePoint kStart = TimePoint() + seconds(1000);
constexpr TimePoint kNever = TimePoint::max();

// The milliseconds after `start` at which notes about `oldest` are sent, if the schedule is asked each millisecond.
std::vector<int> Sent(NoteSchedule& schedule, uint64_t oldest, int num_ms, TimePoint start = kStart,
                      TimePoint deadline = kNever) {
  std::vector<int> sent;
  for (int ms = 0; ms < num_ms; ++ms) {
    const auto due = schedule.Due(oldest, deadline, start + milliseconds(ms));
    if (!due) continue;
    EXPECT_EQ(*due, sent.size());
    sent.push_back(ms);
  }
  return sent;
}

using Times = std::vector<int>;

TEST(NoteScheduleTest, OperationsThatCompleteInTimeSendNothing) {
  NoteSchedule schedule;
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(Sent(schedule, i, 20, kStart + milliseconds(20) * static_cast<int>(i)), Times());
  }
}

TEST(NoteScheduleTest, NotesAboutAnOperationThatDoesNotCompleteAreRepeatedWithPausesThatGrow) {
  NoteSchedule schedule;
  EXPECT_EQ(Sent(schedule, 0, 5000), (Times{20, 40, 80, 160, 320, 640, 1280, 2280, 3280, 4280}));
}

TEST(NoteScheduleTest, AProgramWithSlowOperationsSoonSendsNone) {
  NoteSchedule schedule;
  std::vector<Times> sent;
  for (uint64_t i = 0; i < 6; ++i) {
    sent.push_back(Sent(schedule, i, 100, kStart + seconds(1) * static_cast<int>(i)));
  }
  EXPECT_EQ(sent, (std::vector<Times>{{20, 40, 80}, {40, 80}, {80}, {}, {}, {}}));
}

TEST(NoteScheduleTest, TheTimeBeforeTheFirstNoteHasALimit) {
  NoteSchedule schedule;
  for (uint64_t i = 0; i < 20; ++i) Sent(schedule, i, 1100, kStart + seconds(2) * static_cast<int>(i));
  EXPECT_EQ(Sent(schedule, 20, 1100, kStart + seconds(100)), Times{1000});
}

TEST(NoteScheduleTest, ANoteIsSentBeforeTheDeadline) {
  NoteSchedule schedule;
  EXPECT_EQ(Sent(schedule, 0, 10, kStart, kStart + milliseconds(8)), Times{4});
  EXPECT_EQ(Sent(schedule, 1, 30, kStart, kStart + seconds(30)).size(), 0u);
  // A deadline that is set later, and one that has passed.
  EXPECT_EQ(schedule.Due(1, kStart + milliseconds(50), kStart + milliseconds(30)),
            std::optional<uint32_t>(0));
  EXPECT_EQ(schedule.Due(2, kStart, kStart + milliseconds(31)), std::optional<uint32_t>(0));
}

TEST(NoteScheduleTest, ANoteThatIsSentInAnyCaseCounts) {
  NoteSchedule schedule;
  EXPECT_EQ(schedule.SendNow(3, kStart), 0u);
  EXPECT_EQ(schedule.Due(3, kNever, kStart + milliseconds(19)), std::nullopt);
  EXPECT_EQ(schedule.Due(3, kNever, kStart + milliseconds(20)), std::optional<uint32_t>(1));
  EXPECT_EQ(schedule.SendNow(3, kStart + milliseconds(21)), 2u);
}

}  // namespace
}  // namespace ddprun
