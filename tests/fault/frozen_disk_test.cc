// Tests a file system that blocks: an ext4 image that fsfreeze(8) freezes. It contains the stderr of one
// agent, the agent's --tee logs and its temporary directory.
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"
#include "tests/fault/testing/read_all.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// How long the disk stays frozen: longer than a lease.
constexpr Duration kStall = 2 * kLease;
constexpr char kNoMounts[] = "a file system image cannot be mounted here";

std::string Numbered(const std::string& word, int last) {
  std::string text;
  for (int i = 1; i <= last; ++i) text += word + " " + std::to_string(i) + "\n";
  return text;
}

// Returns `text` with `prefix` before each line.
std::string Prefixed(const std::string& prefix, const std::string& text) {
  std::istringstream lines(text);
  std::string all;
  for (std::string line; std::getline(lines, line);) all += prefix + line + "\n";
  return all;
}

// Returns the lines of `text` that begin with `begin`.
std::string Lines(const std::string& text, const std::string& begin) {
  std::istringstream lines(text);
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(begin)) all += line + "\n";
  }
  return all;
}

// Whether a thread of the process is blocked on the frozen file system.
bool IsBlocked(pid_t pid) {
  std::error_code gone;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    const std::string stat = ReadAll(task.path() / "stat");
    const size_t name_end = stat.rfind(')');
    if (name_end != std::string::npos && stat[name_end + 2] == 'D') return true;
  }
  return false;
}

class FrozenDiskTest : public HostFaultTest {
 protected:
  void TearDown() override {
    if (frozen_) Thaw();
  }

  // Returns false if a file system image cannot be mounted here.
  bool MountDisk(int node) {
    node_ = node;
    const std::string image = directory_ + "/image";
    std::filesystem::create_directory(disk_);
    std::ofstream(image).close();
    std::filesystem::resize_file(image, 32 << 20);
    const auto mounted = hosts().Start(
        node, {"/bin/sh", "-c", "mkfs.ext4 -q " + image + " && mount -o loop " + image + " " + disk_});
    return mounted->Wait() == ProcessEnd{.code = 0};
  }

  // Starts a job on two nodes whose workers print continuously. `node` has the disk, and the first node hosts
  // the coordinator. Returns false if the disk cannot be mounted.
  bool StartJob(int node) {
    job_ = std::make_unique<HostJob>(
        2, Args{"--nnodes=2", "--tee=3", "--max-restarts=1"},
        Args{"--no-python", "/bin/sh", "-c",
             "echo begin; i=0; while [ ! -e " + gate_ +
                 " ]; do i=$((i+1)); echo out $i; echo err $i >&2; sleep 0.01; done; echo end $i"});
    if (!MountDisk(node)) return false;
    for (const int host : {0, 1}) {
      const std::string with_disk = "TMPDIR=" + disk_ + " exec \"$@\" 2>> " + disk_ + "/stderr";
      job().StartWith(host == node ? Args{"/bin/sh", "-c", with_disk, "sh"} : Args{});
      job().Start(host);
    }
    for (const int host : {0, 1}) job().AwaitPrinted(host, "out 5");
    return true;
  }

  int node() const { return node_; }
  HostJob& job() { return *job_; }
  Hosts& hosts() { return job_->hosts(); }

  void FreezeDisk() {
    frozen_ = true;
    hosts().Run(node(), {"/usr/sbin/fsfreeze", "--freeze", disk_});
    // The guard thaws the disk even if the test aborts. It runs in dash, because the tests find the workers
    // by the name sh.
    guard_ = hosts().Start(node(), {"/bin/dash", "-c", "sleep 30; fsfreeze --unfreeze " + disk_});
  }
  // Freezes the disk and waits until the agent is blocked.
  void Freeze() {
    FreezeDisk();
    AwaitBlocked();
  }
  void AwaitBlocked() {
    // On a busy machine, a thread also waits for disks that are not frozen, but not for so long.
    constexpr Duration kLonger = milliseconds(500);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    TimePoint free_at = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() < free_at + kLonger) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the agent is not blocked";
      Pass(milliseconds(1));
      if (!IsBlocked(job().agent(node()).pid())) free_at = std::chrono::steady_clock::now();
    }
    FaultNow();
    frozen_at_ = std::chrono::steady_clock::now();
  }
  // Thaws the disk when the agent has been blocked for kStall.
  void ThawAfterTheStall() {
    while (std::chrono::steady_clock::now() < frozen_at_ + kStall) {
      Pass(milliseconds(50));
      ASSERT_TRUE(IsBlocked(job().agent(node()).pid()));
    }
    Thaw();
  }
  void Thaw() {
    frozen_ = false;
    hosts().Run(node(), {"/usr/sbin/fsfreeze", "--unfreeze", disk_});
    guard_.reset();
  }
  // Waits for `time` while reading the output of all processes.
  void Pass(Duration time) { job().agent(node()).AwaitOut("this is never printed", 1, time); }

  void OpenGate() { std::ofstream(gate_).close(); }
  // Returns the contents of the files on the disk that match the shell pattern `file`.
  std::string Contents(const std::string& file) {
    const auto cat = hosts().Start(node(), {"/bin/sh", "-c", "cat " + disk_ + "/" + file});
    EXPECT_EQ(cat->Wait(), ProcessEnd{.code = 0}) << cat->err();
    return cat->out();
  }
  // Returns the stderr of both agents.
  std::string Said() { return job().agent(1 - node()).err() + Contents("stderr"); }

  void ExpectThatNoLeaseExpires(int node);
  void ExpectThatARoundEndsWhileFrozen(int node);

  int node_ = 0;
  const std::string directory_ = MakeTestDirectory();
  const std::string gate_ = directory_ + "/gate";
  const std::string disk_ = directory_ + "/disk";
  std::unique_ptr<HostJob> job_;
  bool frozen_ = false;
  TimePoint frozen_at_{};
  std::unique_ptr<Process> guard_;
};

void FrozenDiskTest::ExpectThatNoLeaseExpires(int node) {
  if (!StartJob(node)) GTEST_SKIP() << kNoMounts;
  Freeze();
  const size_t printed = job().agent(node).out().size();
  ThawAfterTheStall();
  EXPECT_GT(job().agent(node).out().size(), printed) << "output to stdout must not block";
  OpenGate();
  for (const int host : {0, 1}) {
    EXPECT_EQ(job().agent(host).Wait(kPatience), ProcessEnd{.code = 0}) << job().agent(host).err();
  }
  const std::string prefix = "[default0]:";
  const std::string out = Contents("torchelastic_*/*/attempt_0/0/stdout.log");
  const size_t end = out.rfind("end ");
  ASSERT_NE(end, std::string::npos) << out;
  const int last = std::stoi(out.substr(end + 4));
  EXPECT_EQ(out, "begin\n" + Numbered("out", last) + "end " + std::to_string(last) + "\n");
  EXPECT_EQ(job().agent(node).out(), Prefixed(prefix, out));
  EXPECT_EQ(Contents("torchelastic_*/*/attempt_0/0/stderr.log"), Numbered("err", last));
  EXPECT_EQ(Lines(Contents("stderr"), prefix), Prefixed(prefix, Numbered("err", last)));
  EXPECT_THAT(Said(), Not(HasSubstr("lease")));
}

void FrozenDiskTest::ExpectThatARoundEndsWhileFrozen(int node) {
  if (!StartJob(node)) GTEST_SKIP() << kNoMounts;
  Freeze();
  kill(hosts().Find(1 - node, "sh").back(), SIGKILL);
  ThawAfterTheStall();
  for (const int host : {0, 1}) {
    job().AwaitPrinted(host, "begin");
    job().AwaitPrinted(host, "out 2");
  }
  OpenGate();
  for (const int host : {0, 1}) {
    EXPECT_EQ(job().agent(host).Wait(kPatience), ProcessEnd{.code = 0}) << job().agent(host).err();
  }
  const std::string first = Contents("torchelastic_*/*/attempt_0/0/stderr.log");
  EXPECT_THAT(Numbered("err", 100'000), StartsWith(first));
  EXPECT_THAT(Contents("torchelastic_*/*/attempt_1/0/stdout.log"), StartsWith("begin\nout 1\n"));
  EXPECT_THAT(Said(), HasSubstr("restart 1 of 1"));
  EXPECT_THAT(Said(), Not(HasSubstr("lease")));
}

// No output is lost while the disk is frozen.
TEST_F(FrozenDiskTest, NoLeaseExpiresOnTheCoordinatorsNode) { ExpectThatNoLeaseExpires(0); }
TEST_F(FrozenDiskTest, NoLeaseExpiresOnAnotherNode) { ExpectThatNoLeaseExpires(1); }

// The next round starts when its log files can be created.
TEST_F(FrozenDiskTest, ARoundEndsWhileTheCoordinatorsDiskIsFrozen) { ExpectThatARoundEndsWhileFrozen(0); }
TEST_F(FrozenDiskTest, ARoundEndsWhileAnotherNodesDiskIsFrozen) { ExpectThatARoundEndsWhileFrozen(1); }

// The agent cannot create its log directory on the frozen disk.
TEST_F(FrozenDiskTest, AStartingAgentReportsWhatItWaitsFor) {
  job_ = std::make_unique<HostJob>(1, Args{"--nnodes=1"}, Args{WorkerPath(), "--exit=0"});
  if (!MountDisk(0)) GTEST_SKIP() << kNoMounts;
  FreezeDisk();
  job().Start(0, {}, {{"TMPDIR", disk_}});
  AwaitBlocked();
  EXPECT_THAT(job().AwaitLogged(0, "does not answer"),
              HasSubstr("the file system of the temporary directory does not answer; this node does not join "
                        "the job until it answers"));
  Thaw();
  EXPECT_EQ(job().agent(0).Wait(kPatience), ProcessEnd{.code = 0}) << job().agent(0).err();
}

// The agent's blocked thread cannot be killed, and keeps all descriptors of the agent open, including its
// socket to the warden.
TEST_F(FrozenDiskTest, AnAgentThatIsKilledLeavesNoWorker) {
  if (!StartJob(0)) GTEST_SKIP() << kNoMounts;
  Freeze();
  job().agent(0).Signal(SIGKILL);
  const auto deadline = frozen_at_ + kStall;
  while (!hosts().Find(0, "sh").empty() && std::chrono::steady_clock::now() < deadline)
    Pass(milliseconds(10));
  EXPECT_EQ(hosts().Find(0, "sh"), std::vector<pid_t>());
  EXPECT_TRUE(IsBlocked(job().agent(0).pid()));
}

}  // namespace
}  // namespace ddprun
