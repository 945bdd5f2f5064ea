// Tests what observers of the real program get: events, metrics, the health check, the launcher's messages,
// and the launcher's error file. Also tests that the watchdog's FIFO is removed however the launcher ends.

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/hanging_file.h"
#include "launcher/process/testing/own_mounts.h"
#include "net/testing/raw_peer.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/read_all.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Optional;
using testing::SizeIs;

constexpr ProcessEnd kFailure{.code = 1};

std::unique_ptr<Process> Start(const Args& options, const std::string& script, const Environment& env = {}) {
  return std::make_unique<Process>(
      Args{DdprunPath()} + options + Args{"--no-python", "/bin/sh", "-c", script}, Stdio::kPipes, env);
}

// Returns the text between each occurrence of `before` and the next occurrence of `after`.
std::vector<std::string> Between(const std::string& text, const std::string& before,
                                 const std::string& after) {
  std::vector<std::string> found;
  for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, at)) {
    at += before.size();
    found.push_back(text.substr(at, text.find(after, at) - at));
  }
  return found;
}

TEST(ObserversTest, EventsOfAFailureAndARestart) {
  const auto agent = Start({"--nproc-per-node=2", "--max-restarts=1", "--event-log-handler=console"},
                           "test $RANK = 0 || exit 3; exec sleep 1000");
  EXPECT_THAT(agent->Wait(), Optional(kFailure));
  EXPECT_THAT(Between(agent->err(), "{\"name\": \"torchelastic.worker.status.", "\""),
              ElementsAre("RENDEZVOUS", "ASSIGN_WORKER_RANKS", "START", "START", "RENDEZVOUS",
                          "ASSIGN_WORKER_RANKS", "START", "START", "FAILED", "FAILED", "SUCCEEDED"));
  EXPECT_THAT(agent->err(), HasSubstr("\"entry_point\\\": \\\"sh\\\""));
  EXPECT_THAT(agent->err(), HasSubstr(" closing signal SIGTERM\n"));
  EXPECT_THAT(agent->err(), HasSubstr("failed (exitcode: 3) local_rank: 1 (pid: "));
  EXPECT_THAT(agent->err(), HasSubstr(") of binary: /bin/sh\n"));
}

TEST(ObserversTest, Metrics) {
  const auto agent = Start({"--metrics-handler=console", "--role=trainer"}, "exit 0");
  EXPECT_THAT(agent->Wait(), Optional(ProcessEnd{.code = 0}));
  EXPECT_THAT(agent->err(), HasSubstr("[torchelastic]: workers.trainer.run_success_no_retries=1\n"));
}

TEST(ObserversTest, ObserversAreOffByDefault) {
  const auto agent = Start({}, "exit 3");
  EXPECT_THAT(agent->Wait(), Optional(kFailure));
  EXPECT_THAT(agent->err(), Not(HasSubstr("torchelastic.worker")));
  EXPECT_THAT(agent->err(), Not(HasSubstr("[torchelastic]")));
  EXPECT_THAT(agent->err(), Not(HasSubstr("health check")));
}

TEST(ObserversTest, TheHealthCheckAnswersWhileTheLauncherRuns) {
  const auto agent = Start({}, "echo up; exec sleep 1000", {{"TORCHELASTIC_HEALTH_CHECK_PORT", "0"}});
  const std::string line = agent->AwaitErr("the health check listens on port ").at(0);
  ASSERT_THAT(agent->AwaitOut("up"), SizeIs(1));
  constexpr char kRunning[] = "\"state\": \"running\", \"round\": 0, \"workers_running\": 1";
  const TimePoint deadline = std::chrono::steady_clock::now() + seconds(20);
  std::string reply;
  do {  // The worker may print before the launcher is notified that the worker runs.
    RawPeer peer(std::stoi(line.substr(line.rfind(' '))));
    ASSERT_TRUE(peer.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    reply.clear();
    peer.ReceiveToEnd(&reply);
    ASSERT_THAT(reply, HasSubstr("HTTP/1.1 200 OK\r\n"));
  } while (!absl::StrContains(reply, kRunning) && std::chrono::steady_clock::now() < deadline);
  EXPECT_THAT(reply, HasSubstr(kRunning));
  // A second job on this host, with the same port, runs without a health check.
  const auto second =
      Start({}, "exit 0", {{"TORCHELASTIC_HEALTH_CHECK_PORT", line.substr(line.rfind(' ') + 1)}});
  EXPECT_THAT(second->Wait(), Optional(ProcessEnd{.code = 0}));
  EXPECT_THAT(second->err(), HasSubstr("running without a health check"));
}

TEST(ObserversTest, TheWatchdogsFileIsRemovedHoweverTheLauncherEnds) {
  for (const int signo : {SIGKILL, SIGTERM, 0}) {
    const std::string file = MakeTestDirectory() + "/timers";
    std::ofstream(file) << "stale";
    const auto agent = Start({},
                             "test -p $TORCHELASTIC_TIMER_FILE && echo up $PPID; " +
                                 std::string(signo == 0 ? "exit 0" : "exec sleep 1000"),
                             {{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}, {"TORCHELASTIC_TIMER_FILE", file}});
    const std::vector<std::string> up = agent->AwaitOut("up ");
    ASSERT_THAT(up, SizeIs(1)) << agent->err();
    const Traces traces = TracesOf(agent->mark());
    if (signo != 0) agent->Signal(signo);
    EXPECT_TRUE(agent->Wait().has_value());
    // After SIGKILL the warden, which exits last, removes the file.
    EXPECT_THAT(LeftOf(traces, agent->mark()), IsEmpty());
    EXPECT_NE(access(file.c_str(), F_OK), 0) << "signal " << signo;
  }
}

// The launcher queues its own lines behind the output of the workers.
TEST(ObserversTest, AnUnreadStderrBlocksNeitherTheLauncherNorTheNextStart) {
  const std::string script =
      "test $TORCHELASTIC_RESTART_COUNT = 1 && echo second && exit 0; "
      "head -c 1000000 /dev/zero | tr '\\0' x >&2; echo >&2; exit 3";
  // Swaps the streams, since a test can hold only stdout.
  Process agent({"/bin/sh", "-c", "exec 3>&1 1>&2 2>&3 3>&-; exec \"$@\"", "sh", DdprunPath(),
                 "--max-restarts=1", "--no-python", "/bin/sh", "-c", script});
  agent.HoldOut();
  EXPECT_THAT(agent.AwaitErr("second"), SizeIs(1));
  agent.FreeOut();
  EXPECT_THAT(agent.Wait(), Optional(ProcessEnd{.code = 0}));
  EXPECT_THAT(agent.out(), HasSubstr(std::string(1'000'000, 'x') + "\n[ddprun "));
  EXPECT_THAT(agent.out(), HasSubstr("failed (exitcode: 3)"));
}

TEST(ObserversTest, ALogFileAtItsSizeLimitIsReportedAndTheJobContinues) {
  Process agent({"/bin/sh", "-c", "ulimit -f 8; exec \"$@\"", "sh", DdprunPath(), "--tee=1",
                 "--log-dir=" + MakeTestDirectory(), "--no-python", "/bin/sh", "-c",
                 "head -c 100000 /dev/zero | tr '\\0' x; echo; echo end"});
  EXPECT_THAT(agent.Wait(), Optional(ProcessEnd{.code = 0}));
  EXPECT_THAT(agent.out(), HasSubstr("[default0]:" + std::string(100'000, 'x') + "\n[default0]:end\n"));
  EXPECT_THAT(agent.err(), HasSubstr("/0/stdout.log; further output is lost: File too large"));
}

TEST(ObserversTest, AMissingProgramIsReportedInTheLaunchersErrorFile) {
  const std::string file = MakeTestDirectory() + "/error.json";
  Process agent({DdprunPath(), "/no/such/program"}, Stdio::kPipes, {{"TORCHELASTIC_ERROR_FILE", file}});
  EXPECT_THAT(agent.Wait(), Optional(kFailure));
  EXPECT_THAT(ReadAll(file), HasSubstr("/no/such/program"));
}

TEST(ObserversTest, AWorkerInUninterruptibleSleepEndsTheJobWithoutARestart) {
  if (const absl::Status mounts = UseOwnMounts(); !mounts.ok()) GTEST_SKIP() << mounts;
  const auto hanging = HangingFile::Create(MakeTestDirectory());
  if (!hanging.ok()) GTEST_SKIP() << hanging.status();
  const auto agent =
      Start({"--nproc-per-node=2", "--max-restarts=3"},
            "echo \"pid $RANK $$$$\"; test $RANK = 0 && exec sleep 1000; exec cat " + (*hanging)->path(),
            {{"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", "0.3"}});
  const std::vector<std::string> line = agent->AwaitOut("pid 1 ");
  ASSERT_THAT(line, SizeIs(1)) << agent->err();
  ASSERT_TRUE((*hanging)->AwaitOneThatHangs(seconds(20)));
  // The worker waits for the FUSE server. This sleep becomes uninterruptible only after a signal.
  kill(std::stoi(line[0].substr(line[0].rfind(' '))), SIGTERM);
  EXPECT_THAT(agent->Wait(seconds(60)), Optional(kFailure));
  EXPECT_THAT(agent->err(),
              HasSubstr("The worker has not ended: it is in uninterruptible sleep (state D) for "));
  EXPECT_THAT(agent->err(), HasSubstr("another start would end the same way"));
  EXPECT_THAT(Between(agent->out(), "pid ", "\n"), SizeIs(2)) << "no worker may be restarted";
  (*hanging)->Release();
}

}  // namespace
}  // namespace ddprun
