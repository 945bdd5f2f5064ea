// Tests KillAll with workers to spare: which processes it kills, which it leaves alone, and when it answers. Uses
// real processes and signals.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/process/testing/fake_agent.h"
#include "launcher/process/testing/hanging_file.h"
#include "launcher/process/testing/lacking.h"
#include "launcher/process/warden_client.h"
#include "os/boot_clock.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

const ExitInfo kKilled = Signaled{SIGKILL, false};

// A worker with a child in another session and a grandchild.
constexpr char kFamily[] =
    "setsid sh -c 'sleep 1001 & wait' &\n"
    "echo ready; wait";

class SparedWorkersTest : public ::testing::Test {
 protected:
  // Starts a worker with kFamily, and waits until its three processes exist.
  uint64_t StartFamily() {
    const size_t before = agent_.MarkedProcesses().size();
    const uint64_t id = agent_.StartAndWaitReady(kFamily);
    EXPECT_TRUE(agent_.AwaitMarkedProcesses(before + 3));
    return id;
  }
  // Stops the warden, so that the requests until Continue() are pending together.
  void Stop() {
    ASSERT_EQ(kill(agent_.client().warden_pid(), SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(waitpid(agent_.client().warden_pid(), &status, WUNTRACED), agent_.client().warden_pid());
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void Continue() { ASSERT_EQ(kill(agent_.client().warden_pid(), SIGCONT), 0); }
  // Starts a KillAll. `answered_` contains `name` after its answer.
  void BeginKillAll(const std::string& name, const std::vector<uint64_t>& spare) {
    agent_.client().KillAll(
        kPatience,
        [this, name](const std::vector<LeftOver>& left) {
          EXPECT_THAT(left, IsEmpty());
          answered_.push_back(name);
        },
        spare);
  }

  FakeAgent agent_;
  std::vector<std::string> answered_;
};

struct HasHangingFile {
  absl::StatusOr<std::unique_ptr<HangingFile>> file = HangingFile::Create(testing::TempDir());
};

// The file is older than the agent, as HangingFile requires.
class SparedWorkersAndAHangTest : public HasHangingFile, public SparedWorkersTest {
 protected:
  void SetUp() override {
    if (!file.ok()) GTEST_SKIP() << "cannot make a process unkillable on this machine: " << file.status();
  }
  // Starts a worker that SIGKILL does not end before Release() of the file.
  uint64_t StartUnkillable() {
    const uint64_t id = agent_.next_id++;
    agent_.client().Spawn(id, agent_.Command({"/bin/cat", (*file)->path()}));
    EXPECT_TRUE((*file)->AwaitOneThatHangs(kPatience));
    return id;
  }
};

TEST_F(SparedWorkersTest, KillsAllOthersAgainAndAgain) {
  const uint64_t one = StartFamily();
  const uint64_t two = StartFamily();
  const std::vector<pid_t> survivors = agent_.MarkedProcesses();
  ASSERT_THAT(survivors, SizeIs(6));
  for (int i = 0; i < 10; ++i) {
    const uint64_t other = agent_.StartAndWaitReady(kHardToKill);
    ASSERT_TRUE(agent_.AwaitMarkedProcesses(9));
    EXPECT_THAT(agent_.KillAll(kPatience, {one, two}), IsEmpty());
    EXPECT_EQ(agent_.ended.count(other), 1u) << "`ended` must be called before `done`";
    EXPECT_THAT(agent_.MarkedProcesses(), UnorderedElementsAreArray(survivors));
  }
  EXPECT_THAT(agent_.KillAll(kPatience, {one, two, 12345}), IsEmpty());
  EXPECT_THAT(agent_.KillAll(kPatience, {two}), IsEmpty());
  EXPECT_EQ(agent_.ended.at(one), kKilled);
  EXPECT_EQ(agent_.ended.count(two), 0u);
  EXPECT_THAT(agent_.MarkedProcesses(), SizeIs(3));
  EXPECT_THAT(agent_.KillAll(), IsEmpty());
  EXPECT_THAT(agent_.MarkedProcesses(), IsEmpty());
}

TEST_F(SparedWorkersTest, KillsWhatEndedWorkersAndSurvivorsHaveDetached) {
  const uint64_t survivor = agent_.StartAndWaitReady(
      "(setsid sh -c 'echo ready; exec sleep 1000' &)\n"
      "exec sleep 1001");
  EXPECT_EQ(agent_.Run(agent_.Shell("setsid sleep 1002 >/dev/null 2>&1 & exit 3")), ExitInfo(Exited{3}));
  ASSERT_TRUE(agent_.AwaitMarkedProcesses(3));
  const pid_t pid = agent_.started.at(survivor);
  EXPECT_THAT(agent_.KillAll(kPatience, {survivor}), IsEmpty());
  EXPECT_THAT(agent_.MarkedProcesses(), ElementsAre(pid));
  EXPECT_EQ(agent_.Run(agent_.Command({"/bin/true"})), ExitInfo(Exited{0})) << "a later start must succeed";
}

// If no worker has to end first, the warden looks for what ended workers have started without a pause.
TEST_F(SparedWorkersTest, DoesNotPauseBeforeItLooks) {
  const uint64_t survivor = agent_.StartAndWaitReady("echo ready; exec sleep 1000");
  auto fastest = Duration::max();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(agent_.Run(agent_.Shell("setsid sleep 1001 >/dev/null 2>&1 & exit 0")), ExitInfo(Exited{0}));
    ASSERT_TRUE(agent_.AwaitMarkedProcesses(2));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THAT(agent_.KillAll(kPatience, {survivor}), IsEmpty());
    fastest = std::min<Duration>(fastest, std::chrono::steady_clock::now() - start);
  }
  EXPECT_LT(fastest, milliseconds(9))
      << "the first look of a warden that waits for workers comes after 10 ms";
}

TEST_F(SparedWorkersTest, KillsInProgressMayDifferInWhatTheySpare) {
  const uint64_t one = StartFamily();
  const uint64_t two = StartFamily();
  const uint64_t three = StartFamily();
  Stop();
  BeginKillAll("spares one and two", {one, two});
  BeginKillAll("spares two and three", {two, three});
  Continue();
  ASSERT_TRUE(agent_.RunUntil([&] { return answered_.size() == 2; }));
  EXPECT_THAT(agent_.order, UnorderedElementsAre(one, three));
  EXPECT_THAT(agent_.MarkedProcesses(), SizeIs(3));
  Stop();
  BeginKillAll("spares two", {two});
  BeginKillAll("spares none", {});
  Continue();
  ASSERT_TRUE(agent_.RunUntil([&] { return answered_.size() == 4; }));
  EXPECT_EQ(agent_.ended.count(two), 1u);
  EXPECT_THAT(agent_.MarkedProcesses(), IsEmpty());
}

TEST_F(SparedWorkersAndAHangTest, ASparedWorkerEndsDuringTheKill) {
  const uint64_t survivor = StartFamily();
  const uint64_t stuck = StartUnkillable();
  // This kill cannot end before Release().
  BeginKillAll("spares the survivor", {survivor});
  ASSERT_EQ(kill(agent_.started.at(survivor), SIGTERM), 0);
  EXPECT_EQ(agent_.RunToEnd(survivor), ExitInfo(Signaled{SIGTERM, false}));
  EXPECT_THAT(answered_, IsEmpty());
  BeginKillAll("spares none", {});
  (*file)->Release();
  ASSERT_TRUE(agent_.RunUntil([&] { return answered_.size() == 2; }));
  EXPECT_EQ(agent_.ended.count(stuck), 1u);
  EXPECT_THAT(agent_.MarkedProcesses(), IsEmpty());
}

TEST_F(SparedWorkersAndAHangTest, AProcessGivenUpDoesNotDelayLaterKills) {
  const uint64_t survivor = StartFamily();
  const uint64_t stuck = StartUnkillable();
  EXPECT_THAT(agent_.KillAll(milliseconds(50), {survivor}), SizeIs(1));
  agent_.StartAndWaitReady(kHardToKill);
  EXPECT_THAT(agent_.KillAll(std::chrono::hours(1), {survivor}), SizeIs(1));
  EXPECT_EQ(agent_.ended.count(survivor), 0u);
  EXPECT_THAT(agent_.MarkedProcesses(), SizeIs(4));
  (*file)->Release();
  EXPECT_EQ(agent_.RunToEnd(stuck), kKilled);
  EXPECT_THAT(agent_.KillAll(kPatience, {survivor}), IsEmpty());
}

TEST_F(SparedWorkersTest, TheFenceKillsThem) {
  const uint64_t survivor = StartFamily();
  Stop();
  BeginKillAll("spares the survivor", {survivor});
  agent_.client().Fence(BootClock::now());
  Continue();
  EXPECT_EQ(agent_.RunToEnd(survivor), kKilled);
  EXPECT_EQ(agent_.times_fenced, 1);
  EXPECT_TRUE(agent_.RunUntil([&] { return answered_.size() == 1; }));
  EXPECT_THAT(agent_.KillAll(), IsEmpty());
  EXPECT_THAT(agent_.MarkedProcesses(), IsEmpty());
}

TEST_F(SparedWorkersTest, TheEndOfTheAgentKillsThem) {
  const uint64_t survivor = StartFamily();
  EXPECT_THAT(agent_.KillAll(kPatience, {survivor}), IsEmpty());
  BeginKillAll("spares the survivor", {survivor});
  agent_.Destroy();
  EXPECT_THAT(agent_.MarkedProcesses(), IsEmpty());
}

TEST_F(SparedWorkersTest, TheyDieWithTheirWarden) {
  const uint64_t survivor = StartFamily();
  const uint64_t other = agent_.StartAndWaitReady(kHardToKill);
  Stop();
  BeginKillAll("while the warden is stopped", {survivor});
  ASSERT_EQ(kill(agent_.client().warden_pid(), SIGKILL), 0);
  ASSERT_TRUE(agent_.RunUntil([&] { return answered_.size() == 1; }));
  EXPECT_EQ(agent_.ended.at(survivor), kKilled);
  EXPECT_EQ(agent_.ended.at(other), kKilled);
  EXPECT_THAT(agent_.MarkedProcesses(), IsEmpty());
  EXPECT_THAT(agent_.lost, SizeIs(1));
  EXPECT_THAT(agent_.KillAll(kPatience, {survivor}), IsEmpty());
}

TEST_F(SparedWorkersTest, ManyWorkers) {
  constexpr uint64_t kMany = 300;  // more ids than the socket to the warden can hold as messages
  std::vector<uint64_t> spare;
  for (uint64_t id = 1; id <= kMany; ++id) {
    agent_.client().Spawn(id, agent_.Command({"/bin/sleep", "1000"}));
    if (id != 7) spare.push_back(id);
  }
  ASSERT_TRUE(agent_.RunUntil([&] { return agent_.started.size() == kMany; }))
      << "only " << agent_.started.size() << " workers have started";
  EXPECT_THAT(agent_.KillAll(kPatience, spare), IsEmpty());
  EXPECT_THAT(agent_.order, ElementsAre(7));
  EXPECT_THAT(agent_.MarkedProcesses(), SizeIs(kMany - 1));
  EXPECT_THAT(agent_.KillAll(), IsEmpty());
  EXPECT_THAT(agent_.MarkedProcesses(), IsEmpty());
}

// Without /proc, the warden cannot tell what is below a worker.
TEST(SparedWorkersWithoutProcTest, AreKilled) {
  InChild([] {
    if (const absl::Status gone = UnmountProc(); !gone.ok()) {
      std::fprintf(stderr, "skipped: %s\n", gone.ToString().c_str());
      return;
    }
    FakeAgent agent;
    const uint64_t worker = agent.StartAndWaitReady("echo ready; exec sleep 1000");
    EXPECT_THAT(agent.KillAll(kPatience, {worker}), IsEmpty());
    EXPECT_EQ(agent.ended.at(worker), kKilled);
  });
  EXPECT_EQ(access("/proc/self/stat", F_OK), 0) << "only the child has lost /proc";
}

}  // namespace
}  // namespace ddprun
