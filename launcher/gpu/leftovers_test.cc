#include "launcher/gpu/leftovers.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr char kNoProc[] = "/no/such";  // no files can be listed

// A child of this test that runs `sleep` with the given environment until the end of the test.
class Child {
 public:
  explicit Child(std::vector<std::string> environment) {
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::vector<char*> env;
      for (std::string& entry : environment) env.push_back(entry.data());
      env.push_back(nullptr);
      char arg0[] = "sleep", arg1[] = "1000000";
      char* const argv[] = {arg0, arg1, nullptr};
      execve("/bin/sleep", argv, env.data());
      _exit(127);
    }
    close(ready[1]);
    char c;
    EXPECT_EQ(read(ready[0], &c, 1), 0);  // exec has closed it
    close(ready[0]);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

std::vector<std::string> Lines(const std::string& text) { return absl::StrSplit(text, '\n'); }

TEST(FindLeftoverTest, DescribesARealProcess) {
  const Child child({"TORCHELASTIC_RUN_ID=job7", "RANK=3", "DDPRUN_ROUND=0"});
  const std::optional<Leftover> found = FindLeftover({child.pid(), 30 * kGiB}, 1 << 30, kNoProc);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->visible);
  EXPECT_EQ(found->command, "sleep 1000000");
  EXPECT_EQ(found->user, getuid() == 0 ? "root" : found->user);
  EXPECT_THAT(found->user, Not(IsEmpty()));
  ASSERT_TRUE(found->age);
  EXPECT_LT(*found->age, std::chrono::minutes(5));
  EXPECT_EQ(found->job, "rank 3 of ddprun job job7");
}

TEST(FindLeftoverTest, NamesTheLauncherOfTheProcess) {
  const struct {
    std::vector<std::string> environment;
    const char* job;
  } kCases[] = {
      {{}, ""},
      {{"RANK=3", "WORLD_SIZE=4"}, ""},
      {{"TORCHELASTIC_RUN_ID=none", "RANK=0"}, "rank 0 of torchrun job none"},
      {{"SLURM_JOB_ID=1234"}, "Slurm job 1234"},
      {{"SLURM_JOB_ID=12", "TORCHELASTIC_RUN_ID=a\nb", "DDPRUN_ROUND=1"}, "ddprun job a b, Slurm job 12"},
  };
  for (const auto& c : kCases) {
    const Child child(c.environment);
    EXPECT_EQ(FindLeftover({child.pid(), 1}, 1 << 30, kNoProc).value_or(Leftover{}).job, c.job);
  }
}

TEST(FindLeftoverTest, SkipsTheAgentAndItsDescendants) {
  const Child child({});
  EXPECT_FALSE(FindLeftover({getpid(), 1}, getpid()));
  EXPECT_FALSE(FindLeftover({child.pid(), 1}, getpid()));
  EXPECT_TRUE(FindLeftover({getpid(), 1}, child.pid()));
}

TEST(FindLeftoverTest, AProcessOfAnotherNamespaceIsNotVisible) {
  for (const pid_t pid : {0, -1, 1 << 29}) {
    const std::optional<Leftover> found = FindLeftover({pid, 1}, getpid());
    ASSERT_TRUE(found);
    EXPECT_FALSE(found->visible);
  }
}

// In a container, the driver may report a pid of the host that another process has here.
TEST(FindLeftoverTest, AProcessWithoutADeviceOfNvidiaIsNotTheOneThatTheDriverMeans) {
  const struct {
    std::vector<std::string> files;
    bool visible;
  } kCases[] = {
      {{"/dev/null", "/var/roots/7/dev/nvidia0"}, true},  // a process with another root directory
      {{"/dev/null", "/dev/nvidia0"}, true},
      {{"/dev/nvidiactl"}, true},
      {{"/dev/null", "pipe:[1]", "/home/nvidia/train.py", "/dev/nvme0"}, false},
      {{}, true},  // it is ending
  };
  const Child child({});
  std::string proc = testing::TempDir() + "/procXXXXXX";
  ASSERT_NE(mkdtemp(proc.data()), nullptr);
  const std::string fd = proc + "/" + std::to_string(child.pid()) + "/fd";
  for (const auto& c : kCases) {
    std::filesystem::remove_all(fd);
    std::filesystem::create_directories(fd);
    for (size_t i = 0; i < c.files.size(); ++i) {
      std::filesystem::create_symlink(c.files[i], fd + "/" + std::to_string(i));
    }
    const std::optional<Leftover> found = FindLeftover({child.pid(), 1}, 1 << 30, proc);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->visible, c.visible) << testing::PrintToString(c.files);
    EXPECT_EQ(found->command, c.visible ? "sleep 1000000" : "");
  }
  std::filesystem::remove_all(fd);
  EXPECT_TRUE(FindLeftover({child.pid(), 1}, 1 << 30, proc)->visible) << "its files cannot be listed";
}

TEST(FindLeftoverTest, OpenDevicesAreFoundInTheRealProc) {
  const Child without({});
  EXPECT_FALSE(FindLeftover({without.pid(), 1}, 1 << 30)->visible);
  std::string folder = testing::TempDir() + "/devXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::filesystem::create_directories(folder + "/dev");
  const int device = open((folder + "/dev/nvidia0").c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(device, 0);
  const Child with({});
  close(device);
  EXPECT_TRUE(FindLeftover({with.pid(), 1}, 1 << 30)->visible);
}

TEST(LeftoverWarningTest, NamesTheProcessesAndTheRemedy) {
  const std::vector<std::string> lines =
      Lines(LeftoverWarning("GPU 0 (GPU-8932)", {{.gpu = {4242, 30 * kGiB},
                                                  .visible = true,
                                                  .user = "alice",
                                                  .command = "python train.py",
                                                  .age = std::chrono::hours(2),
                                                  .job = "rank 3 of ddprun job X"},
                                                 {.gpu = {77}}}));
  EXPECT_THAT(
      lines,
      ElementsAre(
          "GPU 0 (GPU-8932) is already used by 2 processes of other jobs; the workers may run out of its "
          "memory:",
          "  pid 4242 of user alice, 30.0 GiB of GPU memory, started 2 h 0 min ago, rank 3 of ddprun job X: "
          "python train.py",
          AllOf(StartsWith("  pid 77, an unknown amount of GPU memory: not visible here"),
                HasSubstr("container")),
          "if they are left over, end them with `kill 4242`, or give this job other GPUs with "
          "CUDA_VISIBLE_DEVICES"));
}

TEST(LeftoverWarningTest, NoKillForProcessesThatAreNotVisible) {
  const std::vector<std::string> lines = Lines(LeftoverWarning("GPU 1", {{.gpu = {77, 1}}}));
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[0], HasSubstr("by 1 process of other jobs"));
  EXPECT_EQ(lines[2],
            "if they are left over, end them where they are visible, or give this job other GPUs with "
            "CUDA_VISIBLE_DEVICES");
}

TEST(LeftoverWarningTest, ShowsAtMostEightProcesses) {
  std::vector<Leftover> many;
  for (int pid = 1; pid <= 20; ++pid) many.push_back({.gpu = {pid, 1}, .visible = true, .command = "x"});
  const std::vector<std::string> lines = Lines(LeftoverWarning("GPU 1", many));
  ASSERT_THAT(lines, SizeIs(11));
  EXPECT_EQ(lines[9], "  and 12 more: see nvidia-smi");
  EXPECT_THAT(lines[10], MatchesRegex(".*`kill 1 2 3 .* 20`.*"));
}

}  // namespace
}  // namespace ddprun
