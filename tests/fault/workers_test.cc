// Tests the environment of real workers: processors, devices, variables, arguments, limits and the worker
// store.
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/numa/cpu_topology.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;
using testing::UnorderedElementsAre;

const ProcessEnd kSuccess{.code = 0};
const ProcessEnd kFailure{.code = 1};

// Runs `ddprun options... program...` and expects that it ends with `end`.
std::unique_ptr<Process> RunAgent(const Args& options, const Args& program, const ProcessEnd& end,
                                  const Environment& environment = {}) {
  auto agent = std::make_unique<Process>(Args{DdprunPath()} + options + program, Stdio::kPipes, environment);
  EXPECT_EQ(agent->Wait(), end) << agent->out() << agent->err();
  return agent;
}

std::vector<std::string> SortedLines(const std::string& text) {
  std::multiset<std::string> lines;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.insert(text.substr(begin, end - begin));
  return {lines.begin(), lines.end()};
}

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = MakeTestDirectory() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

// Provides two fake GPUs at the address of an existing PCI device. Skips its tests on machines without PCI
// devices.
class GpuWorkersTest : public testing::Test {
 protected:
  void SetUp() override {
    std::error_code error;
    std::filesystem::directory_iterator devices("/sys/bus/pci/devices", error);
    if (error || devices == std::filesystem::directory_iterator()) GTEST_SKIP() << "no PCI device here";
    const std::string place = devices->path().filename().string();
    environment_ = {
        {"LD_LIBRARY_PATH", std::string(std::getenv("TEST_SRCDIR")) + "/ddprun/launcher/config/testing"},
        {"FAKE_NVML_DEVICES", "2"},
        {"FAKE_NVML_PCI", place + "," + place}};
  }

  Environment environment_;
};

TEST_F(GpuWorkersTest, RunOnTheChosenProcessors) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "two workers need two processors";
  const auto agent =
      RunAgent({"--nproc-per-node=gpu", "--numa-binding=exclusive", "--no-python"},
               {"sh", "-c", "exec grep Cpus_allowed_list: /proc/self/status"}, kSuccess, environment_);
  std::set<int> seen;
  const std::vector<std::string> lines = SortedLines(agent->out());
  ASSERT_THAT(lines, SizeIs(2)) << agent->err();
  for (const std::string& line : lines) {
    const auto cpus = ParseCpuList(line.substr(line.find(':') + 1));
    ASSERT_TRUE(cpus.ok()) << cpus.status();
    EXPECT_THAT(*cpus, Not(IsEmpty()));
    for (const int cpu : *cpus) {
      EXPECT_TRUE(CPU_ISSET(cpu, &allowed));
      EXPECT_TRUE(seen.insert(cpu).second) << "both workers have processor " << cpu;
    }
  }
}

TEST_F(GpuWorkersTest, AreNotStartedIfThereAreFewerGpusThanWorkers) {
  const auto agent =
      RunAgent({"--nproc-per-node=3", "--numa-binding=node"}, {WorkerPath()}, kFailure, environment_);
  EXPECT_THAT(agent->err(),
              HasSubstr("--numa-binding=node: 3 workers need 3 GPUs, one for each, but 2 are visible"));
  EXPECT_THAT(agent->out(), IsEmpty());
}

const Args kShowDevice = {"--no-python", "sh", "-c", "echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES"};

TEST(WorkersTest, WithAVirtualLocalRankEachSeesOneDevice) {
  const Args options = {"--nproc-per-node=2", "--virtual-local-rank"};
  EXPECT_THAT(SortedLines(RunAgent(options, kShowDevice, kSuccess, {{"CUDA_VISIBLE_DEVICES", "6,3"}})->out()),
              ElementsAre("0 3", "0 6"));
  EXPECT_THAT(SortedLines(RunAgent(options, kShowDevice, kSuccess)->out()), ElementsAre("0 0", "0 1"));
  const auto short_list = RunAgent(options, kShowDevice, kFailure, {{"CUDA_VISIBLE_DEVICES", "6"}});
  EXPECT_THAT(short_list->err(), HasSubstr("CUDA_VISIBLE_DEVICES=6 is 1, for 2 workers"));
  EXPECT_THAT(short_list->out(), IsEmpty());
}

// The launcher and its warden raise their own limits but not those of the workers.
TEST(WorkersTest, GetTheOriginalOpenFileLimitOfTheLauncher) {
  constexpr int kWorkers = 64;
  Process shell({"/bin/sh", "-c", "ulimit -Sn 64; exec \"$0\" \"$@\"", DdprunPath(), "--nproc-per-node=64",
                 "--tee=3", "--no-python", "sh", "-c", "ulimit -Sn"});
  EXPECT_EQ(shell.Wait(), kSuccess) << shell.err();
  const std::vector<std::string> lines = SortedLines(shell.out());
  ASSERT_THAT(lines, SizeIs(kWorkers)) << shell.err();
  for (const std::string& line : lines) EXPECT_THAT(line, testing::EndsWith(":64"));
}

TEST(WorkersTest, AnOpenFileLimitThatIsTooLowIsReported) {
  for (const std::string limit : {"8", "12", "16", "31"}) {
    Process shell({"/bin/sh", "-c", "ulimit -n " + limit + "; exec \"$0\" \"$@\"", DdprunPath(),
                   "--nproc-per-node=1", WorkerPath()});
    EXPECT_EQ(shell.Wait(), kFailure) << limit;
    EXPECT_THAT(shell.err(),
                HasSubstr("only " + limit + " files may be open here, but at least 32 are needed"));
    EXPECT_THAT(shell.err(), HasSubstr("ulimit -Hn"));
  }
}

TEST(WorkersTest, ReadTheLaunchersStandardInput) {
  const std::string input = WriteFile("input", "what was typed\n");
  Process shell({"/bin/sh", "-c", "exec \"$0\" --no-python cat < \"$1\"", DdprunPath(), input});
  EXPECT_EQ(shell.Wait(), kSuccess) << shell.err();
  EXPECT_EQ(shell.out(), "what was typed\n");
}

TEST(WorkersTest, GetTheLocalRankAsAnArgumentOnRequest) {
  const Args program = {"--no-python", "echo", "--n=${local_rank}", "$$"};
  EXPECT_THAT(SortedLines(RunAgent({"--nproc-per-node=2", "--pass-local-rank"}, program, kSuccess)->out()),
              ElementsAre("--local-rank=0 --n=0 $", "--local-rank=1 --n=1 $"));
}

TEST(WorkersTest, MayDifferInNumberBetweenNodes) {
  Gate gate;
  const Args program = {WorkerPath(), gate.flag()};
  const auto first = StartAgent({"--nnodes=1:2", "--nproc-per-node=2"}, program);
  const std::vector<std::string> join = first->AwaitErr("other nodes join with: ");
  ASSERT_THAT(join, SizeIs(1)) << first->err();
  ASSERT_THAT(first->AwaitOut("world_size=2"), SizeIs(1)) << first->err();
  const auto second = StartAgent(
      RendezvousOptions(join[0].substr(join[0].find(": ") + 2)) + Args{"--nproc-per-node=3"}, program);
  std::vector<std::string> ready = first->AwaitOut("world_size=5", 2);
  for (const std::string& line : second->AwaitOut("world_size=5", 3)) ready.push_back(line);
  std::set<std::pair<int, int>> places;
  for (const std::string& line : ready) places.emplace(Field(line, "rank"), Field(line, "local_rank"));
  using Place = std::pair<int, int>;
  EXPECT_THAT(places, UnorderedElementsAre(Place(0, 0), Place(1, 1), Place(2, 0), Place(3, 1), Place(4, 2)));
  gate.Open();
  EXPECT_EQ(first->Wait(), kSuccess) << first->err();
  EXPECT_EQ(second->Wait(), kSuccess) << second->err();
}

// The output of --dry-run can be run as a shell script.
TEST(WorkersTest, ArePrintedAndNotStartedInADryRun) {
  const Args options = {"--nproc-per-node=2", "--no-python", "--dry-run"};
  const auto agent =
      RunAgent(options, {"sh", "-c", "echo worker $RANK of $WORLD_SIZE at $MASTER_ADDR"}, kSuccess);
  EXPECT_THAT(agent->out(),
              AllOf(StartsWith("# ddprun --dry-run: nothing is started."), Not(HasSubstr("worker 0"))));
  Process shell({"/bin/sh", "-c", agent->out()});
  EXPECT_EQ(shell.Wait(), kSuccess) << shell.err();
  EXPECT_EQ(shell.out(), "worker 0 of 2 at 127.0.0.1\nworker 1 of 2 at 127.0.0.1\n");
}

TEST(WorkersTest, RunAScriptInTheirInterpreter) {
  const std::string script =
      WriteFile("train.py",
                "import os, sys\n"
                "sys.stdout.write('%s %s\\n' % (__name__, sys.argv[1:]))\n"
                "if os.environ['RANK'] == '1': raise ValueError('the loss is not a number')\n");
  const auto agent = RunAgent({"--nproc-per-node=2", "--run-path"}, {script, "--n=${local_rank}"}, kFailure);
  EXPECT_THAT(agent->out(), HasSubstr("__main__ ['--n=1']"));
  // The message comes from the error file, not from the last lines of stderr.
  EXPECT_THAT(agent->err(),
              AllOf(HasSubstr(script + " FAILED"), HasSubstr("error_file: /"),
                    HasSubstr("ValueError: the loss is not a number"), Not(HasSubstr("runpy"))));
}

TEST(WorkersTest, RankZeroHostsTheStoreIfTheAgentDoesNot) {
  const std::string script = WriteFile("store.py",
                                       "import os, socket, time\n"
                                       "place = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
                                       "assert os.environ['TORCHELASTIC_USE_AGENT_STORE'] == 'False'\n"
                                       "if os.environ['RANK'] == '0':\n"
                                       "    server = socket.create_server(('', place[1]))\n"
                                       "    server.settimeout(20)\n"
                                       "    print('served', server.accept()[0].recv(9).decode())\n"
                                       "else:\n"
                                       "    end = time.monotonic() + 20\n"
                                       "    while True:\n"
                                       "        try:\n"
                                       "            client = socket.create_connection(place)\n"
                                       "            break\n"
                                       "        except ConnectionRefusedError:\n"
                                       "            assert time.monotonic() < end\n"
                                       "    client.sendall(b'a worker')\n");
  for (const Args& options : {Args{}, Args{"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"}}) {
    const auto agent = RunAgent(Args{"--nproc-per-node=2"} + options, {script}, kSuccess,
                                {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}});
    EXPECT_THAT(agent->out(), StartsWith("served a worker")) << agent->err();
  }
}

}  // namespace
}  // namespace ddprun
