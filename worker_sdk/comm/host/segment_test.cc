// Tests a segment that several ranks share. Each rank is a thread or a process.

#include "worker_sdk/comm/host/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "os/descriptor.h"
#include "worker_sdk/comm/host/record.h"

namespace ddprun {
namespace {

constexpr Duration kPatience = seconds(60);

SegmentLayout Layout(int num_ranks) {
  return {.round = 7, .num_ranks = num_ranks, .num_lanes = 1, .chunk_bytes = 4096};
}

// Returns a second mapping of the segment, like the mapping of another process.
Segment Mapped(const Segment& segment) {
  return *Segment::Map(UniqueFd(fcntl(segment.fd(), F_DUPFD_CLOEXEC, 0)), segment.layout());
}

// A rank is killed after it has written its record and before it wakes the sleepers. Another rank detects the
// death and calls SetDead again.
TEST(SegmentTest, SleepersWakeEvenIfTheFirstCallerOfSetDeadWasKilled) {
  Segment segment = *Segment::Create(Layout(3));
  std::future<bool> sleeper = std::async(std::launch::async, [&] {
    Patience forever;
    return segment.AwaitGate(Gate::kFilled, 0, 0, forever);
  });
  // Once rank 0 is asleep, WhoHoldsUp no longer returns it.
  while (segment.WhoHoldsUp().local_ranks != std::vector<int>{1, 2}) std::this_thread::yield();
  const pid_t victim = fork();
  ASSERT_GE(victim, 0);
  if (victim == 0) _exit(segment.MarkDeadForTest(1, DeadRecord(7, AbortedError("first"))) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(victim, &status, 0), victim);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(sleeper.wait_for(milliseconds(20)), std::future_status::timeout)
      << "no rank has woken the sleeper yet";

  EXPECT_FALSE(segment.SetDead(2, DeadRecord(7, UnavailableError("second"))));
  ASSERT_EQ(sleeper.wait_for(kPatience), std::future_status::ready);
  EXPECT_FALSE(sleeper.get());
  EXPECT_EQ(segment.EndOf(0), AbortedError("first"));
}

// The kernel sends SIGXFSZ to a process that creates a larger file than its limit.
TEST(SegmentTest, ALimitOnTheSizeOfFilesIsAnError) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{.rlim_cur = 100000, .rlim_max = 100000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    _exit(Segment::Create(Layout(2)).status().code() == StatusCode::kResourceExhausted ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(SegmentTest, EveryRankThatLeavesIsRecorded) {
  SegmentLayout layout = Layout(2);
  layout.world_size = 5;
  Segment segment = *Segment::Create(layout);
  Segment other = Mapped(segment);
  segment.SetLeft(4, 10);
  other.SetLeft(2, 10);
  for (int r = 0; r < 5; ++r) EXPECT_EQ(segment.HasLeft(r), r == 4 || r == 2) << r;
  EXPECT_FALSE(segment.HasLeft(5));
  EXPECT_EQ(segment.LeftStatus(4), UnavailableError("rank 4 of round 7 has left"));
}

// Calls Join for a rank that may run only on `cpus`.
void JoinOn(Segment& segment, int local_rank, const std::vector<int>& cpus) {
  std::thread([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus) CPU_SET(cpu, &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
    segment.Join(local_rank);
  }).join();
}

std::vector<int> UsableCpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

TEST(SegmentTest, RanksSpinIfEachHasItsOwnProcessor) {
  const std::vector<int> cpus = UsableCpus();
  if (cpus.size() < 2) GTEST_SKIP() << "only one processor";
  Segment first = *Segment::Create(Layout(2));
  Segment second = Mapped(first);
  JoinOn(first, 0, {cpus[0]});
  EXPECT_EQ(first.SpinsForTest(), 0) << "the other rank has not joined yet";
  JoinOn(second, 1, {cpus[1]});
  EXPECT_GT(first.SpinsForTest(), 0);
  EXPECT_GT(second.SpinsForTest(), 0);
}

TEST(SegmentTest, RanksThatShareAProcessorDoNotSpin) {
  const std::vector<int> cpus = UsableCpus();
  Segment first = *Segment::Create(Layout(2));
  Segment second = Mapped(first);
  JoinOn(first, 0, {cpus.at(0)});
  JoinOn(second, 1, {cpus.at(0)});
  EXPECT_EQ(first.SpinsForTest(), 0);
  EXPECT_EQ(second.SpinsForTest(), 0);
}

}  // namespace
}  // namespace ddprun
