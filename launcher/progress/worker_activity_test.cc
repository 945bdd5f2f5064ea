#include "launcher/progress/worker_activity.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <map>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TimePoint At(double s) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s)));
}

TEST(ActivityTableTest, ProcessorTimeOfATenthIsProgress) {
  ActivityTable table;
  EXPECT_THAT(table.Progressed({{7, {.cpu = seconds(5)}}}, At(10)), IsEmpty()) << "new";
  EXPECT_THAT(table.Progressed({{7, {.cpu = milliseconds(5099)}}}, At(11)), IsEmpty());
  EXPECT_THAT(table.Progressed({{7, {.cpu = milliseconds(5199)}}}, At(12)), ElementsAre(7));
  EXPECT_THAT(table.Progressed({{7, {.cpu = milliseconds(5498)}}}, At(15)), IsEmpty());
}

TEST(ActivityTableTest, OutputIsProgress) {
  ActivityTable table;
  table.Progressed({{7, {.written = 1}}, {8, {.written = 1}}}, At(10));
  EXPECT_THAT(table.Progressed({{7, {.written = 1}}, {8, {.written = 2}}, {9, {.written = 5}}}, At(11)),
              ElementsAre(8));
}

using Operations = std::map<pid_t, ActivityTable::Operations>;

// The processor time of one process, which grows by a second at each call; which of them make progress.
class BusyProcess {
 public:
  std::vector<pid_t> Progressed() {
    now_ += seconds(1);
    return table.Progressed({{7, {.cpu = now_ - TimePoint()}}}, now_);
  }
  ActivityTable table;

 private:
  TimePoint now_ = At(10);
};

TEST(ActivityTableTest, ProcessorTimeIsNoProgressWhileRanksDifferInTheirOperations) {
  BusyProcess process;
  (void)process.Progressed();
  EXPECT_THAT(process.table.Launched(Operations{{7, {.launched = 100}}}), IsEmpty()) << "new";
  EXPECT_THAT(process.Progressed(), ElementsAre(7))
      << "the operations are equal, as they are if NCCL does not count them";
  EXPECT_THAT(process.table.Launched(Operations{{7, {.launched = 101, .differ = true}}}), ElementsAre(7));
  EXPECT_THAT(process.Progressed(), IsEmpty());
  EXPECT_THAT(process.table.Launched(Operations{{7, {.launched = 101, .differ = true}}}), IsEmpty());
  EXPECT_THAT(process.table.Launched(Operations{}), IsEmpty()) << "not known any more";
  EXPECT_THAT(process.Progressed(), ElementsAre(7));
}

TEST(ActivityTableTest, SomeMissingAnswersOfRasAreForgiven) {
  BusyProcess process;
  (void)process.Progressed();
  (void)process.table.Launched(Operations{{7, {.launched = 101, .differ = true}}});
  for (int i = 0; i < ActivityTable::kMissed; ++i) {
    EXPECT_THAT(process.table.Launched(std::nullopt), IsEmpty());
    EXPECT_THAT(process.Progressed(), IsEmpty());
  }
  EXPECT_THAT(process.table.Launched(Operations{{7, {.launched = 102, .differ = true}}}), ElementsAre(7))
      << "compared with the last answer";
  for (int i = 0; i <= ActivityTable::kMissed; ++i) (void)process.table.Launched(std::nullopt);
  EXPECT_THAT(process.Progressed(), ElementsAre(7));
}

// Starts a process that runs `work`, and ends it.
template <typename Work>
class Child {
 public:
  explicit Child(Work work) : pid_(fork()) {
    if (pid_ != 0) return;
    work();
    _exit(0);
  }
  ~Child() {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

void UseProcessor(int ms) {
  const clock_t end = clock() + ms * (CLOCKS_PER_SEC / 1000);
  while (clock() < end) {
  }
}

TEST(ReadActivitiesTest, CountsProcessorTimeAndOutputOfAProcessAndOfThoseBelowIt) {
  int done[2], out[2];
  ASSERT_EQ(pipe(done), 0);
  ASSERT_EQ(pipe(out), 0);
  const Child child([&] {
    setpgid(0, 0);
    const pid_t ended = fork();
    UseProcessor(150);
    if (ended == 0) _exit(0);
    waitpid(ended, nullptr, 0);
    if (fork() == 0) {
      UseProcessor(150);
      if (write(out[1], "12345", 5) != 5 || write(done[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    for (;;) pause();
  });
  char byte;
  ASSERT_EQ(read(done[0], &byte, 1), 1);
  const Activities activities = ReadActivities({child.pid(), 0});
  ASSERT_EQ(activities.size(), 1u) << "there is no process 0";
  EXPECT_GE(activities.at(child.pid()).cpu, milliseconds(390));
  EXPECT_EQ(activities.at(child.pid()).written, 6u);
  for (const int fd : {done[0], done[1], out[0], out[1]}) close(fd);
}

TEST(ReadActivitiesTest, AProcessThatWaitsShowsNone) {
  const Child child([] {
    for (;;) pause();
  });
  ActivityTable table;
  EXPECT_THAT(table.Progressed(ReadActivities({child.pid()}), At(10)), IsEmpty());
  EXPECT_THAT(table.Progressed(ReadActivities({child.pid()}), At(11)), IsEmpty());
  EXPECT_THAT(table.Progressed(ReadActivities({getpid(), child.pid()}), At(12)), IsEmpty());
}

}  // namespace
}  // namespace ddprun
