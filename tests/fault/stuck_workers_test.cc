// One of three workers gets stuck, so that the others wait for it in an all-reduce. The job stands still, and within 12 s, three
// times the longest step but at least 10 s, the launcher says which rank is stuck, and where. Without LOGLEVEL=INFO.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/hanging_file.h"
#include "launcher/process/testing/own_mounts.h"
#include "launcher/progress/testing/ras_server.h"
#include "net/local_host.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class StuckWorkersTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { AdoptOrphans(); }

  // Runs the job until it stands still, and returns what is logged then.
  std::string Find(const std::string& how) {
    return Find({"--nproc-per-node=3"}, {TestFile("tests/fault/testing/stuck_worker"), how}, seconds(12));
  }
  std::string Find(const Args& options, const Args& program, Duration limit) {
    agent_ = StartAgent(Args{"--shutdown-timeout=1"} + options, program);
    const auto stuck = agent_->AwaitOut("stuck", 1, seconds(60));
    if (stuck.empty()) return "no worker is stuck: " + agent_->err();
    EXPECT_EQ(agent_->err().find("no progress"), std::string::npos) << "a false alarm: " << agent_->err();
    const TimePoint begun = agent_->found_at();
    const auto found = agent_->AwaitErr("has made no progress for ");
    if (found.empty()) return "nothing is found: " + agent_->err();
    EXPECT_LT(agent_->found_at() - begun, limit);
    return found[0];
  }
  // Ends the job. Nothing may be left, although the stuck worker may not react to signals.
  void End() {
    const Traces traces = TracesOf(agent_->mark());
    agent_->Signal(SIGTERM);
    EXPECT_TRUE(agent_->Wait(seconds(30)).has_value());
    EXPECT_THAT(LeftOf(traces, agent_->mark()), IsEmpty());
  }

  std::unique_ptr<Process> agent_;
};

TEST_F(StuckWorkersTest, EndlessLoop) {
  const std::string found = Find("--loop");
  EXPECT_THAT(found, ContainsRegex("rank 1 on [^ ]+ uses the processor( in Loop)?, at step 199;"));
  EXPECT_THAT(found, HasSubstr("; 2 others wait in all-reduce, operation 200"));
  // On a busy machine gdb may reach its limits, which is then said.
  EXPECT_THAT(found, AnyOf(HasSubstr(" in Loop,"), HasSubstr("no native stacks of process")));
  End();
}

TEST_F(StuckWorkersTest, SkippedCollective) {
  const std::string found = Find("--skip");
  EXPECT_THAT(found,
              ContainsRegex("rank 1 on [^ ]+ waits in receive, operation 0, at step 199; 2 others wait in "
                            "all-reduce, operation 200"));
  End();
}

TEST_F(StuckWorkersTest, Deadlock) {
  const std::string found = Find("--deadlock");
  EXPECT_THAT(found, ContainsRegex("rank 1 on [^ ]+ is in .*futex"));
  EXPECT_THAT(found, HasSubstr(", at step 199; 2 others wait in all-reduce, operation 200"));
  End();
}

TEST_F(StuckWorkersTest, FileSystemThatDoesNotAnswer) {
  if (const absl::Status mounts = UseOwnMounts(); !mounts.ok()) GTEST_SKIP() << mounts;
  const auto file = HangingFile::Create(MakeTestDirectory());
  if (!file.ok()) GTEST_SKIP() << file.status();
  const std::string found = Find("--open=" + (*file)->path());
  EXPECT_THAT(found, ContainsRegex("rank 1 on [^ ]+ is in .*openat"));
  EXPECT_THAT(found, HasSubstr(", at step 199; 2 others wait in all-reduce, operation 200"));
  (*file)->Release();
  End();
}

// Shells report nothing, so that only --hang-timeout=SECONDS judges them: by their output, here for 8 s, and by processor time.
TEST_F(StuckWorkersTest, AScriptThatShowsNoActivity) {
  const std::string found =
      Find({"--nproc-per-node=2", "--hang-timeout=5", "--no-python"},
           {"/bin/sh", "-c",
            "i=0; if [ $RANK = 1 ]; then while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.2; done; "
            "while [ $i -lt 4000000 ]; do i=$((i+1)); done; echo stuck; fi; exec sleep 1000"},
           seconds(8));
  EXPECT_THAT(found, HasSubstr("ranks 0 ("));
  EXPECT_THAT(found, HasSubstr(" are in clock_nanosleep"));
  End();
}

// These scripts report nothing, and use a whole processor, as a worker that waits for a collective of NCCL. NCCL's RAS tells that they launch
// operations, and then which one does not: for 12 s, all count; from then on, rank 1 is behind. Without RAS, the processor time would count
// as progress without end.
TEST_F(StuckWorkersTest, NcclTellsWhoIsBehind) {
  const TimePoint begun = std::chrono::steady_clock::now();
  std::mutex mu;
  std::vector<pid_t> pids;
  RasServer ras([&](int) {
    const auto seconds_passed =
        static_cast<uint64_t>((std::chrono::steady_clock::now() - begun) / seconds(1));
    const uint64_t count = std::min<uint64_t>(seconds_passed, 12);
    const std::lock_guard lock(mu);
    std::vector<RasProcess> processes;
    for (size_t rank = 0; rank < pids.size(); ++rank) {
      processes.push_back({InterfaceAddresses().at(0).address, pids[rank],
                           100 + count - (seconds_passed > 12 && rank == 1 ? 1 : 0), 0});
    }
    return RasAnswer({RasCommunicator(processes)});
  });
  agent_ = std::make_unique<Process>(
      Args{DdprunPath(), "--shutdown-timeout=1", "--nproc-per-node=3", "--hang-timeout=10", "--no-python",
           "/bin/sh", "-c", "echo pid $RANK $$$$; while :; do :; done"},
      Stdio::kPipes, Environment{{"NCCL_RAS_ADDR", ras.address()}});
  const auto lines = agent_->AwaitOut("pid ", 3, seconds(60));
  ASSERT_THAT(lines, SizeIs(3)) << agent_->err();
  {
    const std::lock_guard lock(mu);
    pids.resize(3);
    for (const std::string& line : lines) {
      int rank = 0, pid = 0;
      ASSERT_EQ(std::sscanf(line.c_str() + line.find("pid "), "pid %d %d", &rank, &pid), 2) << line;
      pids.at(rank) = pid;
    }
  }
  const auto found = agent_->AwaitErr("has made no progress for ", 1, seconds(60));
  ASSERT_THAT(found, SizeIs(1)) << agent_->err();
  EXPECT_GT(agent_->found_at() - begun, seconds(20)) << "the operations were no progress";
  EXPECT_THAT(found[0],
              ContainsRegex("rank 1 on [^ ]+ uses the processor.*; 2 others wait in a collective of "
                            "NCCL, operation 111"));
  End();
}

// A worker that touches its file is not judged by what it prints.
TEST_F(StuckWorkersTest, AScriptThatStopsTouchingItsHeartbeatFile) {
  const std::string found = Find(
      {"--nproc-per-node=2", "--no-python"},
      {"/bin/sh", "-c",
       "i=0; while [ $i -lt 160 ]; do i=$((i+1)); touch $DDPRUN_HEARTBEAT_FILE || exit 1; sleep 0.1; done; "
       "test $RANK = 1 && echo stuck; while :; do echo noise; sleep 0.3; done"},
      seconds(13));
  EXPECT_THAT(found, HasSubstr("round 0 has made no progress for "));
  End();
}

}  // namespace
}  // namespace ddprun
