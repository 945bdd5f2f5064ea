// Tests what real agents say about the GPUs of their workers, with a fake of NVIDIA's driver library. The
// errors of GPUs are written to the real kernel's log, which needs root. This test is a separate target
// because it must run without Bazel's sandbox, which has a PID namespace of its own.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/read_all.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// The PCI domain of this test's GPUs. It is unlikely that another test, which reads the same log, uses it.
std::string Domain() {
  char text[16];
  std::snprintf(text, sizeof text, "%04x", 0xa000 | (getpid() & 0xfff));
  return text;
}

class GpuTest : public testing::Test {
 protected:
  // The environment of an agent with two fake GPUs.
  Environment Gpus(const Environment& more = {}) const {
    Environment environment = {
        {"LD_LIBRARY_PATH", std::string(std::getenv("TEST_SRCDIR")) + "/ddprun/launcher/config/testing"},
        {"FAKE_NVML_DEVICES", "2"},
        {"FAKE_NVML_PCI", Domain() + ":10:00.0," + Domain() + ":20:00.0"},
        {"FAKE_NVML_MEMORY", memory_}};
    environment.insert(environment.end(), more.begin(), more.end());
    return environment;
  }
  void SetUp() override { std::ofstream(memory_) << "0 5 0 0\n1 0 0 0\n"; }

  // Runs a job with a worker for each GPU, until it has failed, and returns the agent.
  std::unique_ptr<Process> Fail(const std::string& script, const Args& options = {},
                                const Environment& more = {}) const {
    auto agent = std::make_unique<Process>(
        Args{DdprunPath(), "--nproc-per-node=gpu", "--no-python", "--log-dir=" + dir_} + options +
            Args{"sh", "-c", script},
        Stdio::kPipes, Gpus(more));
    EXPECT_EQ(agent->Wait(), ProcessEnd{.code = 1}) << agent->err();
    return agent;
  }

  // The page that the agent has written to the log directory.
  std::string ReadPage() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_)) {
      if (entry.path().filename() == "failure_report.txt") return ReadAll(entry.path().string());
    }
    return "";
  }

  const std::string dir_ = MakeTestDirectory();
  const std::string memory_ = dir_ + "/memory";
};

// Tests that write to the kernel's log.
class XidTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    const int fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
    if (fd < 0) GTEST_SKIP() << "cannot write to the kernel's log here";
    close(fd);
  }
  // A shell command that writes a message about the GPU on this bus.
  static std::string Report(const std::string& bus, const std::string& text) {
    return "echo \"NVRM: Xid (PCI:" + Domain() + ":" + bus + ":00): " + text + "\" > /dev/kmsg; ";
  }
};

TEST_F(XidTest, AnErrorOfTheGpuIsInTheReport) {
  // Worker 1 fails. The message names no process; with --virtual-local-rank, the GPU is that of worker 1
  // only.
  const auto agent = Fail(
      "[ $RANK = 0 ] && exec sleep 1000000; " + Report("20", "79, GPU has fallen off the bus.") + "exit 3",
      {"--virtual-local-rank"});
  const std::string line = "GPU " + Domain() + ":20:00.0 reported Xid 79 (GPU has fallen off the bus) ";
  EXPECT_THAT(agent->err(), AllOf(HasSubstr("evidence: " + line), HasSubstr("reboot the host")));
  const std::string page = ReadPage();
  EXPECT_THAT(page, HasSubstr(line.substr(0, 60)));
}

TEST_F(XidTest, TheProcessThatTheMessageNamesIsTheWorkerOrItsChild) {
  // Both workers can use both GPUs. The child of worker 0 causes the error, and the driver ends its channels.
  // The child is alive when the worker fails. ddprun replaces $$$$ in arguments with $$, the pid of the
  // shell.
  if (std::filesystem::read_symlink("/proc/self/ns/pid") != "pid:[4026531836]") {
    GTEST_SKIP() << "the kernel's log has the pids of another namespace";
  }
  const std::string fifo = dir_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const auto agent = Fail("[ $RANK = 1 ] && exec sleep 1000000; sh -c '" +
                          Report("10", "31, pid=$$$$, name=sh, Ch 00000008, intr 00000000. MMU Fault") +
                          Report("10", "45, pid=$$$$, name=sh, Ch 00000008") +
                          "echo done; exec sleep 1000000' > " + fifo + " & read done < " + fifo + "; exit 3");
  EXPECT_THAT(agent->err(),
              AllOf(HasSubstr("evidence: GPU " + Domain() + ":10:00.0 reported Xid 31 (GPU memory"),
                    ContainsRegex("for[ \n]+process[ \n]+[0-9]+[ \n]+\\(sh\\)"), HasSubstr("a bug of the"),
                    Not(HasSubstr("one of the 2")), Not(HasSubstr("not known to be"))));
  EXPECT_THAT(agent->err(), Not(HasSubstr("Xid 45")));
}

TEST_F(XidTest, ErrorsOfOtherGpusAreNotInTheReport) {
  const auto agent =
      Fail("[ $RANK = 0 ] && exec sleep 1000000; " +
               Report("10", "48, An uncorrectable double bit error (DBE) has been detected") + "exit 3",
           {"--virtual-local-rank"});
  EXPECT_THAT(agent->err(), HasSubstr("exit code 3"));
  EXPECT_THAT(agent->err(), Not(HasSubstr("Xid"))) << "it is the GPU of worker 0";
}

TEST_F(XidTest, ErrorsOfEarlierRoundsAreNotInTheReport) {
  const auto agent = Fail("[ $RANK = 0 ] && exec sleep 1000000; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && { " +
                              Report("20", "48, An uncorrectable double bit error (DBE) has been detected") +
                              "exit 5; }; exit 3",
                          {"--virtual-local-rank", "--max-restarts=1"});
  const size_t second = agent->err().find("exit code 3");
  ASSERT_NE(second, std::string::npos);
  EXPECT_THAT(agent->err().substr(0, second), HasSubstr("Xid 48")) << "of the first round";
  EXPECT_THAT(agent->err().substr(second), Not(HasSubstr("Xid")));
}

TEST_F(GpuTest, EccErrorsSinceTheStartAreInTheReport) {
  const auto agent =
      Fail("[ $RANK = 1 ] && exec sleep 1000000; printf '0 7 0 0\\n1 0 0 0\\n' > " + memory_ + "; exit 3",
           {"--virtual-local-rank"});
  EXPECT_THAT(agent->err(),
              HasSubstr("evidence: GPU " + Domain() + ":10:00.0 has counted 2 uncorrected ECC errors"));
}

TEST_F(GpuTest, ADriverThatHangsDoesNotHoldUpTheJob) {
  const auto agent =
      Fail("exit 3", {}, {{"FAKE_NVML_HANG", "nvmlDeviceGetTotalEccErrors"}, {"FAKE_NVML_STRICT", "1"}});
  EXPECT_THAT(agent->err(), HasSubstr("exit code 3"));
}

TEST_F(GpuTest, ProcessesOnTheGpusAreNamedAtStart) {
  // A job that has left a process on GPU 1, and a process of another PID namespace on GPU 0.
  // It inherits the open device.
  std::filesystem::create_directories(dir_ + "/dev");
  const int device = open((dir_ + "/dev/nvidia1").c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(device, 0);
  const Process leftover({"/bin/sleep", "1000000"}, Stdio::kPipes,
                         {{"TORCHELASTIC_RUN_ID", "job7"}, {"RANK", "3"}, {"DDPRUN_ROUND", "2"}});
  close(device);
  const std::string pid = std::to_string(leftover.pid());
  const auto agent = Fail("exit 3", {"--max-restarts=1"},
                          {{"FAKE_NVML_PROCESSES", "1:" + pid + ":3221225472,0:536870911:1048576"}});
  EXPECT_THAT(agent->err(),
              AllOf(HasSubstr("GPU 1 (GPU-1000) is already used by 1 process of other jobs"),
                    ContainsRegex("pid " + pid +
                                  " of user [^,]+, 3.0 GiB of GPU memory, started [^,]+ ago, rank 3 of "
                                  "ddprun job job7: /bin/sleep 1000000"),
                    HasSubstr("`kill " + pid + "`"),
                    HasSubstr("pid 536870911, 1.0 MiB of GPU memory: not visible here")));
  const std::string words = "is already used";
  const size_t first = agent->err().find(words), second = agent->err().find(words, first + 1);
  EXPECT_NE(second, std::string::npos);
  EXPECT_EQ(agent->err().find(words, second + 1), std::string::npos) << "not again at the restart";
}

TEST_F(GpuTest, AnOldDriverIsNoProblem) {
  const std::string folder =
      std::string(std::getenv("TEST_SRCDIR")) + "/ddprun/launcher/config/testing/oldest";
  const auto agent = Fail(
      "exit 3", {}, {{"LD_LIBRARY_PATH", folder}, {"FAKE_NVML_PROCESSES", "0:1:1"}, {"LOGLEVEL", "DEBUG"}});
  EXPECT_THAT(agent->err(), AllOf(HasSubstr("exit code 3"), HasSubstr("the driver is too old"),
                                  Not(HasSubstr("is already used"))));
}

TEST_F(GpuTest, OnlyGpusThatTheJobUsesAreLookedAt) {
  const Process leftover({"/bin/sleep", "1000000"});
  const std::string processes = "1:" + std::to_string(leftover.pid()) + ":1,0:1:1";
  EXPECT_THAT(Fail("exit 3", {}, {{"CUDA_VISIBLE_DEVICES", "1"}, {"FAKE_NVML_PROCESSES", processes}})->err(),
              AllOf(HasSubstr("GPU 1 (GPU-1000) is already used"), Not(HasSubstr("GPU 0"))));
  // A job that does not say that it uses GPUs.
  EXPECT_THAT(Fail("exit 3", {"--nproc-per-node=2"}, {{"FAKE_NVML_PROCESSES", processes}})->err(),
              Not(HasSubstr("is already used")));
}

}  // namespace
}  // namespace ddprun
