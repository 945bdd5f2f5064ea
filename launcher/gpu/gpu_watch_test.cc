#include "launcher/gpu/gpu_watch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/config/testing/loaded_nvml.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kBus[] = "4,1,1,-;NVRM: Xid (PCI:0000:10:00): 79, GPU has fallen off the bus.\n";

TimePoint Now() { return std::chrono::steady_clock::now(); }

size_t NumThreads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(threads), end(threads)));
}

// A shell with a child, which both run until the end of the test.
class Family {
 public:
  Family() {
    int out[2];
    EXPECT_EQ(pipe(out), 0);
    parent_ = fork();
    if (parent_ == 0) {
      setpgid(0, 0);
      dup2(out[1], STDOUT_FILENO);
      execl("/bin/sh", "sh", "-c", "sleep 1000000 & echo $!; wait", nullptr);
      _exit(127);
    }
    close(out[1]);
    char text[32] = {};
    EXPECT_GT(read(out[0], text, sizeof text - 1), 0);
    close(out[0]);
    child_ = atoi(text);
  }
  ~Family() {
    kill(-parent_, SIGKILL);
    waitpid(parent_, nullptr, 0);
  }
  pid_t parent() const { return parent_; }
  pid_t child() const { return child_; }

 private:
  pid_t parent_ = -1, child_ = -1;
};

// Two GPUs of the fake driver, a file as the kernel's log, and a log of the agent in memory.
class GpuWatchTest : public testing::Test {
 protected:
  GpuWatchTest() {
    dir_ = absl::StrCat(testing::TempDir(), "/gpuXXXXXX");
    EXPECT_NE(mkdtemp(dir_.data()), nullptr);
    setenv("FAKE_NVML_DEVICES", "2", 1);
    setenv("FAKE_NVML_PCI", "0000:10:00.0,0000:20:00.0", 1);
    setenv("FAKE_NVML_MEMORY", (dir_ + "/memory").c_str(), 1);
    for (const char* name : {"FAKE_NVML_PROCESSES", "FAKE_NVML_HANG", "FAKE_NVML_INIT_ERROR",
                             "FAKE_NVML_COUNT_ERROR", "FAKE_NVML_PROCESSES_ERROR", "FAKE_NVML_SHUTDOWN"})
      unsetenv(name);
    SetPidNamespace("pid:[4026531836]");
    std::ofstream(dir_ + "/kmsg") << "4,1,1,-;old\n";
    log_.SendTo([this](absl::string_view text) { absl::StrAppend(&said_, text); });
  }
  void SetPidNamespace(const std::string& name) const {
    std::filesystem::create_directories(dir_ + "/self/ns");
    std::filesystem::remove(dir_ + "/self/ns/pid");
    std::filesystem::create_symlink(name, dir_ + "/self/ns/pid");
  }
  void LogInKernel(const std::string& text) const { std::ofstream(dir_ + "/kmsg", std::ios::app) << text; }
  void SetMemory(const std::string& text) const { std::ofstream(dir_ + "/memory") << text; }

  GpuWatch& Make(GpuWatch::Options options) {
    options.proc = dir_;
    if (options.kernel_log == GpuWatch::Options().kernel_log) options.kernel_log = dir_ + "/kmsg";
    if (options.driver_device == GpuWatch::Options().driver_device) options.driver_device = dir_ + "/none";
    watch_.emplace(io_, std::move(options), &log_, [this] { ++reads_; });
    return *watch_;
  }
  // Opens the watch, and waits until the workers may start.
  GpuWatch& Opened(GpuWatch::Options options) {
    GpuWatch& watch = Make(std::move(options));
    bool started = false;
    watch.Open();
    watch.BeforeStart([&] { started = true; });
    RunUntil([&] { return started; });
    return watch;
  }
  template <typename F>
  void RunUntil(F done) {
    const TimePoint limit = Now() + seconds(20);
    while (!done() && Now() < limit) {
      io_.restart();
      io_.run_one_for(milliseconds(100));
    }
    ASSERT_TRUE(done()) << "not within 20 s. Said:\n" << said_;
  }
  // Runs until nothing is pending.
  void RunAll() {
    io_.restart();
    io_.run_for(seconds(20));
    ASSERT_TRUE(io_.stopped());
  }
  static Failure FailureOf(int local_rank, pid_t pid) {
    return {.local_rank = LocalRank(local_rank), .pid = pid, .failed_at = Now()};
  }
  int Count(const std::string& part) const {
    int n = 0;
    for (size_t at = 0; (at = said_.find(part, at)) != std::string::npos; ++at) ++n;
    return n;
  }

  std::string dir_;
  std::string said_;
  int reads_ = 0;
  const LoadedNvml fake_{"testing"};
  boost::asio::io_context io_;
  AgentLog log_{"node1", "DEBUG"};
  std::optional<GpuWatch> watch_;
};

TEST_F(GpuWatchTest, WithoutADriverNothingHappens) {
  GpuWatch& watch = Make({});
  watch.Open();
  bool started = false;
  watch.BeforeStart([&] { started = true; });
  EXPECT_TRUE(started);
  watch.Started(LocalRank(0), 12);
  watch.Failed();
  EXPECT_FALSE(watch.reading());
  EXPECT_THAT(watch.Evidence(FailureOf(0, 12)), IsEmpty());
  EXPECT_EQ(io_.poll(), 0u) << "nothing is pending";
  EXPECT_EQ(said_, "");
}

TEST_F(GpuWatchTest, AJobWithoutADriverSaysSoOnlyInTheDebugLog) {
  setenv("FAKE_NVML_INIT_ERROR", "9", 1);
  GpuWatch& watch = Opened({.handed_out = true});
  EXPECT_THAT(said_, HasSubstr("debug: errors of GPUs are not reported: nvmlInit_v2 failed with error 9"));
  EXPECT_EQ(Count("\n"), 1);
  watch.Started(LocalRank(0), 12);
  EXPECT_THAT(watch.Evidence(FailureOf(0, 12)), IsEmpty());
}

// Closing may block as any call of a driver with a broken GPU may.
TEST_F(GpuWatchTest, TheLibraryStaysOpenAfterAnError) {
  const std::string closed = dir_ + "/closed";
  setenv("FAKE_NVML_SHUTDOWN", closed.c_str(), 1);
  setenv("FAKE_NVML_COUNT_ERROR", "15", 1);
  const size_t threads = NumThreads();
  Opened({.handed_out = true});
  EXPECT_THAT(said_,
              HasSubstr("errors of GPUs are not reported: nvmlDeviceGetCount_v2 failed with error 15"));
  watch_.reset();
  RunUntil([&] { return NumThreads() <= threads; });  // A thread of another test may have ended meanwhile.
  EXPECT_FALSE(std::filesystem::exists(closed));
}

TEST_F(GpuWatchTest, TheLibraryIsClosedIfTheWorkersCannotUseGpus) {
  const std::string closed = dir_ + "/closed";
  setenv("FAKE_NVML_SHUTDOWN", closed.c_str(), 1);
  GpuWatch& watch = Opened({.visible = "", .driver_device = "/dev/null"});
  EXPECT_TRUE(std::filesystem::exists(closed));
  watch.Started(LocalRank(0), 12);
  watch.Failed();
  EXPECT_FALSE(watch.reading());
  watch.BeforeStart([] {});
  watch.Started(LocalRank(0), 13);
  EXPECT_THAT(watch.Evidence(FailureOf(0, 13)), IsEmpty());
  EXPECT_EQ(said_, "");

  std::filesystem::remove(closed);
  Opened({.driver_device = "/dev/null"});
  EXPECT_FALSE(std::filesystem::exists(closed)) << "the workers may use all GPUs";
}

// The warnings about other processes: none, one and three on two GPUs.
TEST_F(GpuWatchTest, WarnsAboutOtherProcessesBeforeTheWorkersStart) {
  const Family family;
  Opened({.handed_out = true});
  EXPECT_EQ(Count("is already used"), 0) << said_;
  // Its parent must not be this process, whose descendants are workers. The init process is of no job of this
  // test.
  setenv("FAKE_NVML_PROCESSES", "1:1:1073741824", 1);
  Opened({.handed_out = true});
  EXPECT_EQ(Count("is already used"), 1) << said_;
  EXPECT_THAT(said_, HasSubstr("GPU 1 (GPU-1000) is already used by 1 process of other jobs"));
  EXPECT_THAT(said_, HasSubstr("pid 1 of user "));
  said_.clear();
  setenv(
      "FAKE_NVML_PROCESSES",
      absl::StrCat("0:1:1,1:1:?,1:536870911:1024,1:", family.child(), ":1,0:", family.parent(), ":1").c_str(),
      1);
  Opened({.handed_out = true});
  EXPECT_EQ(Count("is already used"), 2) << said_;
  EXPECT_THAT(said_, HasSubstr("GPU 0 (GPU-0000) is already used by 1 process of other jobs"));
  EXPECT_THAT(said_, HasSubstr("GPU 1 (GPU-1000) is already used by 2 processes of other jobs"));
  EXPECT_THAT(said_, HasSubstr("pid 536870911, 1.0 KiB of GPU memory: not visible here"));
  EXPECT_THAT(said_, Not(HasSubstr(absl::StrCat("pid ", family.child())))) << "it descends from this process";
}

TEST_F(GpuWatchTest, AnotherProcessWithAPidThatTheDriverReportsIsNotNamed) {
  setenv("FAKE_NVML_PROCESSES", "0:1:1", 1);
  std::filesystem::create_directories(dir_ + "/1/fd");
  std::filesystem::create_symlink("/dev/null", dir_ + "/1/fd/0");
  Opened({.handed_out = true});
  EXPECT_THAT(said_, HasSubstr("pid 1, 1 byte of GPU memory: not visible here"));
  EXPECT_THAT(said_, Not(HasSubstr("kill")));
}

// In a container, the driver may list workers under pids of the host.
TEST_F(GpuWatchTest, AfterTheStartInvisibleProcessesMayBeWorkers) {
  setenv("FAKE_NVML_PROCESSES", "0:1:1,0:536870911:1,1:536870911:1", 1);
  GpuWatch& watch = Make({.handed_out = true});
  watch.Open();
  boost::asio::io_context other;
  boost::asio::steady_timer(other, GpuWatch::kStartLimit).wait();
  bool started = false;
  watch.BeforeStart([&] { started = true; });
  ASSERT_TRUE(started);
  EXPECT_EQ(said_, "");
  RunUntil([&] { return !said_.empty(); });  // the answer has waited for its handler
  EXPECT_THAT(said_, HasSubstr("GPU 0 (GPU-0000) is already used by 1 process of other jobs"));
  EXPECT_THAT(said_, AllOf(HasSubstr("pid 1 of user "), Not(HasSubstr("536870911"))));
}

TEST_F(GpuWatchTest, OnlyVisibleGpusAndMigDevicesCount) {
  setenv("FAKE_NVML_PROCESSES", "0:1:1,1:1:1,M1:536870911:1", 1);
  Opened({.visible = "GPU-0", .handed_out = true});
  EXPECT_EQ(Count("is already used"), 1) << said_;
  said_.clear();
  Opened({.visible = "MIG-1000", .handed_out = true});
  EXPECT_EQ(Count("is already used"), 1) << said_;
  EXPECT_THAT(said_, HasSubstr("GPU 1 (GPU-1000), MIG device MIG-1000, is already used by 1 process"));
  EXPECT_THAT(said_, HasSubstr("pid 536870911"));
  said_.clear();
  Opened({.visible = "", .handed_out = true});
  EXPECT_EQ(said_, "");
}

TEST_F(GpuWatchTest, OnlyTheGpusOfTheWorkersCountIfEachHasOne) {
  setenv("FAKE_NVML_PROCESSES", "0:1:1,1:1:1", 1);
  Opened({.visible = "1,0", .handed_out = true, .narrowed = true, .num_workers = 1});
  EXPECT_EQ(Count("is already used"), 1) << said_;
  EXPECT_THAT(said_, HasSubstr("GPU 1 (GPU-1000) is already used"));
}

TEST_F(GpuWatchTest, ReadsTheUseOfTheGpus) {
  EXPECT_EQ(Make({}).UseReader(), nullptr) << "no driver";
  setenv("FAKE_NVML_PROCESSES", "0:11:1,0:12:1,1:13:1", 1);
  setenv("FAKE_NVML_BUSY", "97 0", 1);
  const auto read = Opened({.visible = "1,0", .handed_out = true}).UseReader();
  ASSERT_NE(read, nullptr);
  watch_.reset();  // the function does not need it
  EXPECT_EQ(read(), (std::vector<GpuUse>{{.pids = {13}, .percent = 0}, {.pids = {11, 12}, .percent = 97}}));
  unsetenv("FAKE_NVML_BUSY");
  EXPECT_TRUE(read().empty());
}

TEST_F(GpuWatchTest, ProcessesAreNotLookedForIfTheJobDoesNotSayThatItUsesGpus) {
  setenv("FAKE_NVML_PROCESSES", "0:1:1", 1);
  Opened({.driver_device = "/dev/null"});
  EXPECT_EQ(said_, "");
}

TEST_F(GpuWatchTest, ADriverThatHangsDelaysTheStartByAQuarterOfASecond) {
  setenv("FAKE_NVML_HANG", "nvmlDeviceGetComputeRunningProcesses", 1);
  setenv("FAKE_NVML_PROCESSES", "0:1:1", 1);
  const TimePoint begin = Now();
  GpuWatch& watch = Opened({.handed_out = true, .slow_driver = seconds(1)});
  EXPECT_GE(Now() - begin, GpuWatch::kStartLimit);
  EXPECT_LT(Now() - begin, seconds(1));
  EXPECT_EQ(said_, "");
  watch.Started(LocalRank(0), 12);
  watch.Failed();
  EXPECT_FALSE(watch.reading()) << "no second call is made";
  RunUntil([&] { return !said_.empty(); });
  EXPECT_THAT(said_, HasSubstr("NVIDIA's driver library has not answered within 1 s"));
  bool started = false;
  watch.BeforeStart([&] { started = true; });
  EXPECT_TRUE(started) << "later starts do not wait";
}

TEST_F(GpuWatchTest, ADriverThatHangsIsNotMentionedIfTheJobDoesNotSayThatItUsesGpus) {
  setenv("FAKE_NVML_HANG", "nvmlInit", 1);
  Opened({.driver_device = "/dev/null", .slow_driver = milliseconds(1)});
  EXPECT_EQ(said_, "");
}

TEST_F(GpuWatchTest, AProblemWithTheListIsMentionedOnlyInTheDebugLog) {
  setenv("FAKE_NVML_PROCESSES_ERROR", "3", 1);
  Opened({.handed_out = true});
  EXPECT_EQ(Count("debug: GPU 0: nvmlDeviceGetComputeRunningProcesses failed with error 3"), 1) << said_;
  EXPECT_EQ(Count("\n"), 2) << "one line for each GPU";
}

TEST_F(GpuWatchTest, MessagesAreFoundByTheGpu) {
  SetPidNamespace("pid:[4026532198]");
  GpuWatch& watch = Opened({.handed_out = true, .narrowed = true, .num_workers = 2});
  LogInKernel(kBus);
  watch.BeforeStart([] {});
  watch.Started(LocalRank(0), 12);
  watch.Started(LocalRank(1), 13);
  EXPECT_THAT(watch.Evidence(FailureOf(0, 12)), IsEmpty()) << "the message is older than the worker";
  LogInKernel(absl::StrCat("6,1,1,-;usb 1-1: new device\n", kBus, "6,1,1,-;NVRM: x\n"));
  EXPECT_THAT(watch.Evidence(FailureOf(1, 13)), IsEmpty()) << "it has another GPU";
  EXPECT_THAT(watch.Evidence(FailureOf(0, 99)), IsEmpty())
      << "another process than the one that was started last";
  const std::vector<std::string> found = watch.Evidence(FailureOf(0, 12));
  EXPECT_THAT(found,
              ElementsAre(HasSubstr("GPU 0000:10:00.0 reported Xid 79 (GPU has fallen off the bus) ")));
  EXPECT_EQ(watch.Evidence(FailureOf(0, 12)).size(), 1u) << "a second call returns the same";
  watch.BeforeStart([] {});
  watch.Started(LocalRank(0), 14);
  EXPECT_THAT(watch.Evidence(FailureOf(0, 14)), IsEmpty()) << "the worker of the next round";
  EXPECT_THAT(watch.Evidence(FailureOf(1, 13)), IsEmpty());
}

TEST_F(GpuWatchTest, MessagesAreFoundByTheProcessAndItsParent) {
  const Family a, b;
  // Both workers can use both GPUs.
  GpuWatch& watch = Opened({.handed_out = true, .num_workers = 2});
  watch.Started(LocalRank(0), a.parent());
  watch.Started(LocalRank(1), b.parent());
  LogInKernel(absl::StrCat("4,1,1,-;NVRM: Xid (PCI:0000:10:00): 31, pid=", a.parent(), ", name=sh, Ch 1\n",
                           "4,1,1,-;NVRM: Xid (PCI:0000:20:00): 13, pid=", b.child(),
                           ", name=sleep, Ch 2\n"));
  EXPECT_THAT(
      watch.Evidence(FailureOf(0, a.parent())),
      ElementsAre(AllOf(HasSubstr("Xid 31"), HasSubstr(absl::StrCat("process ", a.parent(), " (sh)")))));
  EXPECT_THAT(
      watch.Evidence(FailureOf(1, b.parent())),
      ElementsAre(AllOf(HasSubstr("Xid 13"), HasSubstr(absl::StrCat("process ", b.child(), " (sleep)")))));
}

TEST_F(GpuWatchTest, AFloodOfMessagesDoesNotDisplaceTheFirstError) {
  GpuWatch& watch = Opened({.handed_out = true});
  watch.BeforeStart([] {});
  watch.Started(LocalRank(0), 12);
  std::string flood = kBus;
  for (int i = 0; i < 5000; ++i)
    absl::StrAppend(&flood, "4,1,1,-;NVRM: Xid (PCI:0000:20:00): 74, NVLink: fatal error detected on link ",
                    i, "\n");
  LogInKernel(flood);
  EXPECT_THAT(watch.Evidence(FailureOf(0, 12)),
              ElementsAre(HasSubstr("reported Xid 79"),
                          AllOf(HasSubstr("reported Xid 74"), HasSubstr(" 5000 times, first "))));
  // The next round has a count of its own.
  watch.BeforeStart([] {});
  watch.Started(LocalRank(0), 14);
  LogInKernel(kBus);
  EXPECT_THAT(watch.Evidence(FailureOf(0, 14)), ElementsAre(Not(HasSubstr("times"))));
}

TEST_F(GpuWatchTest, AnUnreadableLogIsMentionedOnceInTheDebugLog) {
  GpuWatch& watch = Opened({.handed_out = true, .kernel_log = "/no/such"});
  EXPECT_EQ(Count("errors of GPUs in the kernel's log are not reported: /no/such: No such file"), 1) << said_;
  watch.Started(LocalRank(0), 12);
  EXPECT_THAT(watch.Evidence(FailureOf(0, 12)), IsEmpty());
  EXPECT_EQ(Count("\n"), 1);
}

TEST_F(GpuWatchTest, EccErrorsThatAreNewAreEvidence) {
  SetMemory("0 5 0 0\n1 0 0 0\n");
  GpuWatch& watch = Opened({.handed_out = true, .narrowed = true, .num_workers = 2});
  watch.Started(LocalRank(0), 12);
  watch.Started(LocalRank(1), 13);
  SetMemory("0 7 1 0\n1 0 0 0\n");
  watch.Failed();
  EXPECT_TRUE(watch.reading());
  watch.Failed();  // of another worker, while the first one is read
  RunUntil([&] { return reads_ > 0; });
  EXPECT_FALSE(watch.reading());
  EXPECT_EQ(reads_, 1);
  EXPECT_THAT(watch.Evidence(FailureOf(0, 12)),
              ElementsAre(HasSubstr("GPU 0000:10:00.0 has counted 2 uncorrected ECC errors"),
                          HasSubstr("next reset")));
  EXPECT_THAT(watch.Evidence(FailureOf(1, 13)), IsEmpty());
  // In the next round they are old.
  watch.BeforeStart([] {});
  watch.Started(LocalRank(0), 14);
  EXPECT_THAT(watch.Evidence(FailureOf(0, 14)), IsEmpty());
}

// The agent may wait for its first round for hours, in which other jobs use the GPUs, and a round may end because of
// another node.
TEST_F(GpuWatchTest, EccErrorsBeforeAStartAreNoEvidence) {
  SetMemory("0 5 0 0\n1 0 0 0\n");
  GpuWatch& watch = Opened({.handed_out = true, .narrowed = true, .num_workers = 1});
  SetMemory("0 7 1 0\n1 0 0 0\n");
  watch.BeforeStart([] {});
  watch.Started(LocalRank(0), 12);
  RunAll();
  watch.Failed();
  RunUntil([&] { return reads_ == 1; });
  EXPECT_THAT(watch.Evidence(FailureOf(0, 12)), IsEmpty());
  SetMemory("0 8 1 0\n1 0 0 0\n");
  watch.Failed();
  RunUntil([&] { return reads_ == 2; });
  EXPECT_THAT(watch.Evidence(FailureOf(0, 12)), ElementsAre(HasSubstr("1 uncorrected ECC error since")));
}

// The state at the start is read while the workers start. Their errors must not be taken for old ones.
TEST_F(GpuWatchTest, EccErrorsAreEvidenceIfTheStateAtTheStartIsReadTooLate) {
  SetMemory("0 5 0 0\n1 0 0 0\n");
  GpuWatch& watch = Opened({.handed_out = true, .narrowed = true, .num_workers = 1});
  SetMemory("0 7 0 0\n1 0 0 0\n");
  watch.BeforeStart([] {});
  watch.Started(LocalRank(0), 12);
  watch.Failed();  // before the answer
  RunAll();
  EXPECT_EQ(reads_, 1);
  EXPECT_THAT(watch.Evidence(FailureOf(0, 12)), ElementsAre(HasSubstr("2 uncorrected ECC errors since")));

  SetMemory("0 8 0 0\n1 0 0 0\n");
  watch.BeforeStart([] {});
  watch.Started(LocalRank(0), 14);
  boost::asio::io_context other;
  boost::asio::steady_timer(other, milliseconds(300)).wait();  // the answer waits for its handler
  RunAll();
  watch.Failed();
  RunUntil([&] { return reads_ == 2; });
  EXPECT_THAT(watch.Evidence(FailureOf(0, 14)), ElementsAre(HasSubstr("1 uncorrected ECC error since")));
}

TEST_F(GpuWatchTest, ADriverThatHangsAtAStartIsCalledOnceMore) {
  GpuWatch& watch = Opened({.handed_out = true});
  setenv("FAKE_NVML_HANG", "nvmlDeviceGetTotalEccErrors", 1);
  const size_t threads = NumThreads();
  for (int round = 0; round < 3; ++round) {
    bool started = false;
    watch.BeforeStart([&] { started = true; });
    EXPECT_TRUE(started);
    watch.Started(LocalRank(0), 12 + round);
  }
  watch.Failed();
  RunUntil([&] { return reads_ > 0; });
  EXPECT_THAT(said_, HasSubstr("has not answered within 500 ms: ECC errors of GPUs are not reported"));
  watch.BeforeStart([] {});
  watch.Failed();
  EXPECT_FALSE(watch.reading());
  EXPECT_LE(NumThreads(), threads + 2) << "one for the starts, one for the failure";
}

TEST_F(GpuWatchTest, ADriverThatHangsDelaysAReportByHalfASecond) {
  GpuWatch& watch = Opened({.handed_out = true});
  watch.Started(LocalRank(0), 12);
  setenv("FAKE_NVML_HANG", "nvmlDeviceGetTotalEccErrors", 1);
  const TimePoint begin = Now();
  watch.Failed();
  RunUntil([&] { return reads_ > 0; });
  EXPECT_GE(Now() - begin, GpuWatch::kReadLimit);
  EXPECT_THAT(said_, HasSubstr("has not answered within 500 ms: ECC errors of GPUs are not reported"));
  watch.Failed();
  EXPECT_FALSE(watch.reading()) << "no second call is made";
  LogInKernel(kBus);
  EXPECT_THAT(watch.Evidence(FailureOf(0, 12)), SizeIs(1)) << "the kernel's log is still read";
}

}  // namespace
}  // namespace ddprun
