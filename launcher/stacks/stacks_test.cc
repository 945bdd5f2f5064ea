#include "launcher/stacks/stacks.h"

#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/process_tree.h"
#include "launcher/stacks/testing/worker.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

constexpr char kShowsOneThread[] = R"(printf 'Thread %s (idle): "MainThread"\n    f (a.py:1)\n' "$4")";

// A folder with fake tools, and workers that count as Python because their program is named python3.
class StacksTest : public testing::Test {
 protected:
  StacksTest() {
    limits_.path = folder_;
    limits_.at_once = 4;
    limits_.tool = limits_.all = seconds(60);  // the tests of limits set their own
    CopyWorker(Python());
  }

  std::string Python() const { return absl::StrCat(folder_, "/bin/python3"); }
  void FakePySpy(const std::string& body) { WriteScript(absl::StrCat(folder_, "/py-spy"), body); }
  void FakeGdb(const std::string& body) { WriteScript(absl::StrCat(folder_, "/gdb"), body); }

  Stacks Collect(const std::vector<pid_t>& pids, StackKind kind = StackKind::kWithoutPause) {
    return CollectStacks(pids, kind, limits_);
  }

  const std::string folder_ = [] {
    std::string folder = NewFolder();
    std::filesystem::create_directory(folder + "/bin");
    return folder;
  }();
  StackLimits limits_;
};

class RealGdbTest : public StacksTest {
 protected:
  RealGdbTest() { limits_.path = "/usr/local/bin:/usr/bin:/bin"; }
};

// The threads of known_function besides the main one. A sanitizer may add a thread, and frames that start a thread.
size_t OtherThreads(const std::vector<ThreadStack>& threads) {
  return static_cast<size_t>(std::count_if(threads.begin(), threads.end(), [](const ThreadStack& t) {
    return !t.main && t.folded.find("other_thread") != std::string::npos;
  }));
}

TEST_F(StacksTest, PythonThreads) {
  FakePySpy(R"(test "$1 $2 $3" = "dump --nonblocking --pid" || exit 1
printf 'Thread 99 (idle): "loader"\n    load_batch (torch/data.py:41)\n    run (a.py:2)\n'
printf 'Thread %s (active): "MainThread"\n    <module> (train.py:3)\n' "$4")");
  Worker worker({.program = Python()});
  const Stacks stacks = Collect({worker.pid()});
  EXPECT_THAT(stacks.missing, IsEmpty());
  const auto& threads = stacks.of.at(worker.pid());
  ASSERT_EQ(threads.size(), 2);
  EXPECT_TRUE(threads[0].main);
  EXPECT_EQ(threads[0].thread, worker.pid());
  EXPECT_EQ(threads[0].folded, "<module> (train.py:3)");
  EXPECT_FALSE(threads[1].main);
  EXPECT_EQ(threads[1].thread, 99);
  EXPECT_EQ(threads[1].name, "loader");
  EXPECT_EQ(threads[1].folded, "load_batch (data.py:41)\nrun (a.py:2)");
  EXPECT_THAT(stacks.paused, IsEmpty());
  EXPECT_TRUE(worker.Answers());
}

TEST_F(StacksTest, AProgramThatIsNotPythonHasNoPythonStacks) {
  FakePySpy("touch $0.used; exit 1");
  Worker worker;
  const Stacks stacks = Collect({worker.pid()});
  EXPECT_THAT(stacks.of, IsEmpty());
  EXPECT_THAT(stacks.missing, IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/py-spy.used"));
}

TEST_F(StacksTest, AProcessThatHasEndedIsNotMentioned) {
  FakePySpy("exit 1");
  pid_t pid = 0;
  {
    Worker worker({.program = Python()});
    pid = worker.pid();
  }
  const pid_t zombie = fork();
  if (zombie == 0) _exit(0);
  ASSERT_TRUE(AwaitState(zombie, 'Z'));
  const Stacks stacks = Collect({pid, zombie, 0, -1}, StackKind::kNative);
  EXPECT_THAT(stacks.of, IsEmpty());
  EXPECT_THAT(stacks.missing, IsEmpty());
  waitpid(zombie, nullptr, 0);
}

TEST_F(StacksTest, AProcessThatEndsMeanwhileIsNotMentioned) {
  FakePySpy("kill -9 $4; echo Error: no such process; exit 1");
  Worker worker({.program = Python()});
  const Stacks stacks = Collect({worker.pid()});
  EXPECT_THAT(stacks.of, IsEmpty());
  EXPECT_THAT(stacks.missing, IsEmpty());
}

TEST_F(StacksTest, ToolsThatAreNotInstalledAreSaidOnce) {
  Worker a({.program = Python()}), b({.program = Python()});
  const Stacks stacks = Collect({a.pid(), b.pid(), a.pid()}, StackKind::kNative);
  const std::string both = absl::StrCat(" of processes ", a.pid(), " and ", b.pid(), ": ");
  EXPECT_THAT(
      stacks.missing,
      ElementsAre(absl::StrCat("no Python stacks", both, "py-spy is not installed: pip install py-spy"),
                  absl::StrCat("no native stacks", both, "gdb is not installed: install the package gdb")));
}

TEST_F(StacksTest, PySpyOfTheEnvironmentOfTheWorker) {
  const std::string venv = NewFolder();
  WriteScript(venv + "/py-spy", kShowsOneThread);
  Worker worker({.program = Python(), .env = {"PATH=relative:/nonexistent:" + venv}});
  EXPECT_EQ(Collect({worker.pid()}).of.at(worker.pid())[0].folded, "f (a.py:1)");
}

TEST_F(StacksTest, PySpyBesideTheInterpreter) {
  WriteScript(folder_ + "/bin/py-spy", kShowsOneThread);
  Worker worker({.program = Python()});
  EXPECT_EQ(Collect({worker.pid()}).of.at(worker.pid())[0].folded, "f (a.py:1)");
}

TEST_F(StacksTest, EnvironmentOfTools) {
  setenv("DEBUGINFOD_URLS", "http://localhost:1", 1);
  setenv("PYTHONHOME", "/nonexistent", 1);
  FakePySpy(R"(printf 'Thread 1 (idle)\n    %s (a.py:1)\n' "$LC_ALL,$DEBUGINFOD_URLS,$PYTHONHOME")");
  Worker worker({.program = Python()});
  EXPECT_EQ(Collect({worker.pid()}).of.at(worker.pid())[0].folded, "C,, (a.py:1)");
  unsetenv("DEBUGINFOD_URLS");
  unsetenv("PYTHONHOME");
}

TEST_F(StacksTest, AToolThatHangsAndIgnoresSignalsIsKilled) {
  FakePySpy("trap '' TERM INT HUP; echo $$ > $0.$4; sleep 1000 & wait; sleep 1000");
  limits_.tool = milliseconds(300);
  Worker worker({.program = Python()});
  const Stacks stacks = Collect({worker.pid()});
  EXPECT_THAT(stacks.of, IsEmpty());
  EXPECT_THAT(stacks.missing, ElementsAre(absl::StrCat("no Python stacks of process ", worker.pid(),
                                                       ": py-spy has not ended within 0.3 s")));
  pid_t tool = 0;
  std::ifstream(absl::StrCat(folder_, "/py-spy.", worker.pid())) >> tool;
  if (tool != 0) {
    EXPECT_TRUE(AwaitEnd(tool));
  }
  EXPECT_TRUE(worker.Answers());
}

TEST_F(StacksTest, TheLimitOfAllTools) {
  FakePySpy("sleep 1000");
  limits_.all = milliseconds(200);
  limits_.at_once = 1;
  Worker a({.program = Python()}), b({.program = Python()}), c({.program = Python()});
  EXPECT_THAT(Collect({a.pid(), b.pid(), c.pid()}).missing,
              ElementsAre(absl::StrCat("no Python stacks of process ", a.pid(),
                                       ": py-spy has not ended within the time limit of 0.2 s"),
                          absl::StrCat("no Python stacks of processes ", b.pid(), " and ", c.pid(),
                                       ": the time limit of 0.2 s was reached before py-spy was started")));
}

TEST_F(StacksTest, TooMuchOutput) {
  FakePySpy("yes 'no stack'");
  Worker worker({.program = Python()});
  EXPECT_THAT(Collect({worker.pid()}).missing,
              ElementsAre(HasSubstr("py-spy has written more than 1048576 bytes")));
}

TEST_F(StacksTest, TheStacksBeforeTooMuchOutputAreKept) {
  FakePySpy(absl::StrCat(kShowsOneThread, R"(; yes '    g (b.py:2)')"));
  limits_.stack = 50;
  Worker worker({.program = Python()});
  const Stacks stacks = Collect({worker.pid()});
  EXPECT_THAT(stacks.missing, ElementsAre(StartsWith("not all Python stacks")));
  const auto& threads = stacks.of.at(worker.pid());
  ASSERT_EQ(threads.size(), 1);
  EXPECT_EQ(threads[0].folded, "f (a.py:1)\ng (b.py:2)\ng (b.py:2)\ng (b.py:2)\n...");
}

TEST_F(StacksTest, GarbageIsSaidOnce) {
  FakePySpy("echo; echo 'hello '$4; head -c 1000 /dev/urandom");
  Worker a({.program = Python()}), b({.program = Python()});
  EXPECT_THAT(Collect({a.pid(), b.pid()}).missing,
              ElementsAre(AllOf(HasSubstr(" and "), HasSubstr("is not understood: hello PID"))));
}

TEST_F(StacksTest, NoPermission) {
  FakePySpy("echo 'Error: Permission denied (os error 13)' >&2; echo x >> $0.tries; exit 1");
  FakeGdb("echo 'ptrace: Operation not permitted.' >&2; exit 0");
  Worker worker({.program = Python()});
  EXPECT_THAT(Collect({worker.pid()}, StackKind::kNative).missing,
              ElementsAre(AllOf(StartsWith("no Python stacks"), HasSubstr("py-spy is not permitted"),
                                HasSubstr("SYS_PTRACE")),
                          AllOf(StartsWith("no native stacks"), HasSubstr("gdb is not permitted"))));
  std::ifstream tries(folder_ + "/py-spy.tries");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(tries), {}), "x\n");
}

TEST_F(StacksTest, AFailureIsTriedAgain) {
  FakePySpy(absl::StrCat("echo x >> $0.tries; if [ $(wc -l < $0.tries) -lt 3 ]; then ",
                         "echo 'Error: Failed to get stack traces'; exit 1; fi\n", kShowsOneThread));
  Worker worker({.program = Python()});
  const Stacks stacks = Collect({worker.pid()});
  EXPECT_THAT(stacks.missing, IsEmpty());
  EXPECT_EQ(stacks.of.at(worker.pid())[0].folded, "f (a.py:1)");
}

TEST_F(StacksTest, AFailureThatRemains) {
  FakePySpy("echo Python v3.99; echo; echo 'Error: Unsupported version'; exit 3");
  Worker worker({.program = Python()});
  EXPECT_THAT(Collect({worker.pid()}).missing,
              ElementsAre(HasSubstr("py-spy has failed (exit status 3): Error: Unsupported version")));
}

TEST_F(StacksTest, AToolThatCannotBeExecuted) {
  FakePySpy("");
  std::ofstream(folder_ + "/py-spy") << "#!/nonexistent\n";
  Worker worker({.program = Python()});
  EXPECT_THAT(Collect({worker.pid()}).missing, ElementsAre(HasSubstr("/py-spy cannot be executed")));
}

TEST_F(StacksTest, ThousandsOfThreadsAreBounded) {
  FakePySpy("seq 2000 | sed 's/.*/Thread & (idle)\\n    f (a.py:1)/'");
  limits_.threads = 1000;
  Worker a({.program = Python()}), b({.program = Python()});
  const Stacks stacks = Collect({a.pid(), b.pid()});
  size_t threads = 0;
  for (const auto& [pid, list] : stacks.of) threads += list.size();
  EXPECT_EQ(threads, 1000);
  EXPECT_THAT(stacks.missing, ElementsAre(HasSubstr("more than 1000 threads")));
}

TEST_F(StacksTest, AGdbThatHangsAfterItHasAttachedIsKilled) {
  std::filesystem::copy_file("launcher/stacks/attach_and_hang", folder_ + "/gdb");
  limits_.pause = milliseconds(50);
  Worker worker;
  const Stacks stacks = Collect({worker.pid()}, StackKind::kNative);
  EXPECT_THAT(stacks.missing, ElementsAre(HasSubstr("gdb has paused it for longer than 0.05 s")));
  EXPECT_GE(stacks.paused.at(worker.pid()), limits_.pause);
  EXPECT_TRUE(worker.Answers());
  EXPECT_EQ(TracerOf(worker.pid()), 0);
}

TEST_F(StacksTest, AGdbThatHangsAtOneProcessIsStartedAgainForTheOthers) {
  std::filesystem::copy_file("launcher/stacks/attach_and_hang", folder_ + "/hang");
  FakeGdb(R"sh(echo x >> $0.tries
for a in "$@"; do
  case "$a" in "attach "*) pid=${a#attach } ;; *) continue ;; esac
  if [ $pid = "$(cat ${0%gdb}hanging)" ]; then exec ${0%gdb}hang "$a"; fi
  printf 'ddprun attaches %s\nThread 1 (LWP %s "w"):\n#0  f ()\n' $pid $pid
done)sh");
  limits_.pause = milliseconds(50);
  Worker a, b, c, d;
  std::ofstream(folder_ + "/hanging") << b.pid();
  const Stacks stacks = Collect({a.pid(), b.pid(), c.pid(), d.pid()}, StackKind::kNative);
  EXPECT_THAT(stacks.missing, ElementsAre(absl::StrCat("no native stacks of process ", b.pid(),
                                                       ": gdb has paused it for longer than 0.05 s")));
  EXPECT_EQ(stacks.of.size(), 3);
  EXPECT_TRUE(b.Answers());
  std::ifstream tries(folder_ + "/gdb.tries");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(tries), {}), "x\nx\n");
}

TEST_F(StacksTest, AStoppedProcessStaysStoppedIfGdbIsKilled) {
  std::filesystem::copy_file("launcher/stacks/attach_and_hang", folder_ + "/gdb");
  limits_.pause = milliseconds(50);
  Worker worker;
  kill(worker.pid(), SIGSTOP);
  ASSERT_TRUE(AwaitState(worker.pid(), 'T'));
  Collect({worker.pid()}, StackKind::kNative);
  EXPECT_TRUE(AwaitState(worker.pid(), 'T'));
  EXPECT_EQ(TracerOf(worker.pid()), 0);
  kill(worker.pid(), SIGCONT);
  EXPECT_TRUE(worker.Answers());
}

TEST_F(StacksTest, AProcessThatIsTracedByAnotherIsNotTouched) {
  FakeGdb("touch $0.used");
  Worker worker;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t tracer = fork();
  if (tracer == 0) {
    const bool seized = ptrace(PTRACE_SEIZE, worker.pid(), nullptr, nullptr) == 0;
    if (write(ends[1], &seized, 1) != 1) _exit(1);
    while (true) pause();
  }
  bool seized = false;
  ASSERT_EQ(read(ends[0], &seized, 1), 1);
  ASSERT_TRUE(seized);
  const Stacks stacks = Collect({worker.pid()}, StackKind::kNative);
  EXPECT_THAT(stacks.missing, ElementsAre(AllOf(HasSubstr("it is traced by "),
                                                HasSubstr(absl::StrCat("(pid ", tracer, ")")))));
  EXPECT_EQ(TracerOf(worker.pid()), tracer);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/gdb.used"));
  EXPECT_TRUE(worker.Answers());
  kill(tracer, SIGKILL);
  waitpid(tracer, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(StacksTest, GdbIsNotAttachedToABlockedProcess) {
  FakeGdb("touch $0.used");
  const pid_t blocked = fork();
  if (blocked == 0) {
    setpgid(0, 0);
    // Like vfork(), but with a copy of the memory: the parent waits in state D.
    if (syscall(SYS_clone, CLONE_VFORK | SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0) {
      while (true) pause();
    }
    _exit(0);
  }
  ASSERT_TRUE(AwaitState(blocked, 'D'));
  EXPECT_THAT(Collect({blocked}, StackKind::kNative).missing,
              ElementsAre(HasSubstr("blocked in the kernel (state D)")));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/gdb.used"));
  kill(-blocked, SIGKILL);
  waitpid(blocked, nullptr, 0);
}

TEST_F(StacksTest, NativeAndPythonFrames) {
  FakePySpy(kShowsOneThread);
  FakeGdb(R"(for a in "$@"; do case "$a" in "attach "*) pid=${a#attach }; esac; done
printf 'ddprun attaches %s\n' $pid
printf 'Thread 1 (LWP %s "python3"):\n#0  poll () from /lib/libc.so.6\n#1  nccl () from /lib/libnccl.so\n' $pid
printf '#2  _PyEval_EvalFrameDefault ()\n#3  main ()\nThread 2 (LWP 77 "io"):\n#0  io_loop ()\n')");
  Worker worker({.program = Python()});
  const Stacks stacks = Collect({worker.pid()}, StackKind::kNative);
  const auto& threads = stacks.of.at(worker.pid());
  ASSERT_EQ(threads.size(), 2);
  EXPECT_EQ(threads[0].folded, "nccl\nf (a.py:1)");
  EXPECT_EQ(threads[0].name, "MainThread");
  EXPECT_EQ(threads[1].folded, "io_loop");
  EXPECT_EQ(threads[1].name, "io");
}

TEST_F(RealGdbTest, KnownFunctionFromAnyThread) {
  Worker worker({.threads = 1});
  Stacks stacks;
  std::thread([&] { stacks = Collect({worker.pid()}, StackKind::kNative); }).join();
  ASSERT_THAT(stacks.missing, IsEmpty());
  const auto& threads = stacks.of.at(worker.pid());
  EXPECT_TRUE(threads[0].main);
  EXPECT_EQ(threads[0].folded, "known::AnswerBytes<char>\nknown_function\nmain");
  EXPECT_EQ(OtherThreads(threads), 1);
  EXPECT_EQ(stacks.paused.size(), 1);
  RecordProperty("pause_ms", static_cast<int>(stacks.paused.at(worker.pid()) / milliseconds(1)));
  EXPECT_TRUE(worker.Answers());
  EXPECT_EQ(TracerOf(worker.pid()), 0);
}

TEST_F(RealGdbTest, AStoppedProcessStaysStopped) {
  Worker worker;
  kill(worker.pid(), SIGSTOP);
  ASSERT_TRUE(AwaitState(worker.pid(), 'T'));
  const Stacks stacks = Collect({worker.pid()}, StackKind::kNative);
  EXPECT_THAT(stacks.missing, IsEmpty());
  EXPECT_THAT(stacks.of.at(worker.pid())[0].folded, HasSubstr("known_function"));
  EXPECT_TRUE(AwaitState(worker.pid(), 'T'));
  kill(worker.pid(), SIGCONT);
  EXPECT_TRUE(worker.Answers());
}

TEST_F(RealGdbTest, TheMainThreadOfMany) {
  limits_.threads = 5;
  Worker worker({.threads = 50});
  const Stacks stacks = Collect({worker.pid()}, StackKind::kNative);
  EXPECT_THAT(stacks.missing, ElementsAre(HasSubstr("more than 5 threads")));
  const auto& threads = stacks.of.at(worker.pid());
  EXPECT_EQ(threads.size(), 5);
  EXPECT_TRUE(threads[0].main);
  EXPECT_TRUE(worker.Answers());
}

TEST_F(RealGdbTest, KilledWhileItIsAttached) {
  // Runs gdb, which sleeps instead of showing the stack of the main thread.
  FakeGdb(R"sh(n=$#
for a in "$@"; do
  case "$a" in "thread apply 1.1 "*) a="shell sleep 1000" ;; esac
  set -- "$@" "$a"
done
shift $n
PATH=/usr/local/bin:/usr/bin:/bin exec gdb "$@")sh");
  limits_.path = folder_;
  limits_.pause = milliseconds(50);
  Worker a, b, stopped;
  kill(stopped.pid(), SIGSTOP);
  ASSERT_TRUE(AwaitState(stopped.pid(), 'T'));
  const Stacks stacks = Collect({a.pid(), b.pid(), stopped.pid()}, StackKind::kNative);
  EXPECT_THAT(stacks.missing, ElementsAre(HasSubstr("gdb has paused it for longer than 0.05 s")));
  EXPECT_EQ(stacks.paused.size(), 3);
  EXPECT_TRUE(a.Answers());
  EXPECT_TRUE(b.Answers());
  EXPECT_TRUE(AwaitState(stopped.pid(), 'T'));
  kill(stopped.pid(), SIGCONT);
  EXPECT_TRUE(stopped.Answers());
}

TEST_F(RealGdbTest, SeveralProcesses) {
  CopyWorker(folder_ + "/other");
  Worker a, other({.program = folder_ + "/other"}), b({.threads = 3});
  const Stacks stacks = Collect({a.pid(), other.pid(), b.pid()}, StackKind::kNative);
  EXPECT_THAT(stacks.missing, IsEmpty());
  EXPECT_EQ(OtherThreads(stacks.of.at(a.pid())), 0);
  EXPECT_EQ(OtherThreads(stacks.of.at(b.pid())), 3);
  EXPECT_EQ(stacks.of.at(a.pid())[0].folded, stacks.of.at(other.pid())[0].folded);
  EXPECT_EQ(stacks.of.at(a.pid())[0].folded, stacks.of.at(b.pid())[0].folded);
  EXPECT_TRUE(a.Answers());
  EXPECT_TRUE(b.Answers());
}

}  // namespace
}  // namespace ddprun
