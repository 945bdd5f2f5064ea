#include "launcher/progress/process_sample.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using State = WorkerEvidence::State;
using testing::HasSubstr;

// A child process that runs `body` until it is killed.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    body();
    _exit(0);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  const pid_t pid_;
};

WorkerEvidence Found(pid_t pid) {
  std::vector<WorkerEvidence> workers = {{.pid = pid}};
  JudgeProcesses(workers);
  return workers[0];
}

void Sleep() {
  while (true) pause();
}
void Loop() {
  volatile bool on = true;
  while (on) {
  }
}

TEST(ProcessSampleTest, ASleepingProcess) {
  const Child child(Sleep);
  const WorkerEvidence found = Found(child.pid());
  EXPECT_EQ(found.state, State::kSleeping);
#ifdef SYS_pause
  EXPECT_THAT(found.place, HasSubstr("pause"));
#endif
}

TEST(ProcessSampleTest, AProcessInALoop) {
  const Child child(Loop);
  EXPECT_EQ(Found(child.pid()).state, State::kRunning);
}

TEST(ProcessSampleTest, TheWorkOfAChildCounts) {
  const Child child([] {
    const Child grandchild(Loop);
    Sleep();
  });
  EXPECT_EQ(Found(child.pid()).state, State::kRunning);
  const auto sample = SampleProcesses({child.pid()});
  ASSERT_EQ(sample.at(child.pid()).threads.size(), 2);
  kill(sample.at(child.pid()).threads[1].pid, SIGKILL);
}

TEST(ProcessSampleTest, AStoppedProcess) {
  const Child child(Sleep);
  kill(child.pid(), SIGSTOP);
  waitpid(child.pid(), nullptr, WUNTRACED);
  EXPECT_EQ(Found(child.pid()).state, State::kStopped);
}

TEST(ProcessSampleTest, ATracedProcess) {
  const Child child([] {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    Sleep();
  });
  int status = 0;
  ASSERT_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
  const WorkerEvidence found = Found(child.pid());
  EXPECT_EQ(found.state, State::kTraced);
  EXPECT_THAT(found.place, HasSubstr("(pid " + std::to_string(getpid()) + ")"));
}

TEST(ProcessSampleTest, AProcessThatHasEnded) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(Found(pid).state, State::kUnknown);
}

TEST(ProcessSampleTest, TheNumberOfThreadsIsLimited) {
  const Child child(Sleep);
  const auto samples = SampleProcesses({child.pid()}, {.threads = 0});
  EXPECT_FALSE(samples.at(child.pid()).complete);
  EXPECT_TRUE(samples.at(child.pid()).threads.empty());
}

ThreadSample Thread(char state, Duration cpu = {}, pid_t pid = 10) {
  return {
      .pid = pid,
      .thread = {.pid = pid, .state = state, .thread = pid, .start_time = 5, .cpu = cpu, .comm = "python"}};
}

TEST(JudgeTest, BlockedInBothLooks) {
  WorkerEvidence worker;
  ProcessSample sample{.threads = {Thread('S'), Thread('D', {}, 11)}};
  sample.threads[1].system_call = "read";
  sample.threads[1].kernel_wait = "nfs_wait_bit_killable";
  Judge(sample, sample, seconds(1), worker);
  EXPECT_EQ(worker.state, State::kBlocked);
  EXPECT_EQ(worker.place, "read, in nfs_wait_bit_killable (its process 11, python)");
  // A disk that is only slow.
  ProcessSample before = sample;
  before.threads[1].thread.state = 'S';
  Judge(before, sample, seconds(1), worker);
  EXPECT_EQ(worker.state, State::kSleeping);
}

TEST(JudgeTest, AnotherThreadWithTheSameNumber) {
  WorkerEvidence worker;
  const ProcessSample before{.threads = {Thread('S'), Thread('D', {}, 11)}};
  ProcessSample after = before;
  after.threads[1].thread.start_time = 6;
  Judge(before, after, seconds(1), worker);
  EXPECT_EQ(worker.state, State::kSleeping);
}

TEST(JudgeTest, EndedBetweenTheLooks) {
  WorkerEvidence worker;
  Judge({.threads = {Thread('S')}}, {}, seconds(1), worker);
  EXPECT_EQ(worker.state, State::kEnded);
}

TEST(SystemCallNameTest, KnownAndUnknown) {
  EXPECT_EQ(SystemCallName(SYS_futex), "futex");
  EXPECT_EQ(SystemCallName(9999), "system call 9999");
}

}  // namespace
}  // namespace ddprun
