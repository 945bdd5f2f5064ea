#include "worker_sdk/comm/nccl/testing/gpu_ranks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/testing/file_store.h"

namespace ddprun {
namespace {

int CountGpus() {
  const StatusOr<const CudaDriver*> driver = OpenCudaDriver();
  if (!driver.ok()) return 0;
  const auto devices = ListCudaDevices(**driver);
  return devices.ok() ? static_cast<int>(devices->size()) : 0;
}

// Runs `body` in a child process, which exits with the returned status.
pid_t StartProcess(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int status = body();
  std::fflush(nullptr);
  _exit(status);
}

// The exit status; -1 after a signal.
int AwaitProcess(pid_t pid) {
  int status = 0;
  if (pid <= 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

int NumGpus() {
  // A process that has used CUDA cannot start others that use it with fork().
  static const int num = OnStandIn() ? CountGpus() : AwaitProcess(StartProcess(CountGpus));
  return num;
}

// Newer versions of NCCL accept several ranks on one GPU.
bool RanksMayShareAGpu() {
  const char* const enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return enabled != nullptr && std::string(enabled) == "1";
}

void RunInThreads(int num, const std::function<void(int)>& rank) {
  std::vector<std::thread> threads;
  threads.reserve(num);
  for (int r = 0; r < num; ++r) threads.emplace_back(rank, r);
  for (std::thread& t : threads) t.join();
}

void RunInProcesses(int num, const std::function<void(int)>& rank) {
  std::vector<pid_t> pids;
  pids.reserve(num);
  for (int r = 0; r < num; ++r) {
    pids.push_back(StartProcess([&rank, r] {
      rank(r);
      return testing::Test::HasFailure() ? 1 : 0;
    }));
  }
  for (int r = 0; r < num; ++r) EXPECT_EQ(AwaitProcess(pids[r]), 0) << "rank " << r << ": see its output";
}

}  // namespace

bool OnStandIn() { return std::getenv("DDPRUN_STAND_IN_DEVICES") != nullptr; }

int GpuOf(int rank) { return rank % NumGpus(); }

void ConnectGpuRanks(const GpuWorld& world, const GpuConnected& body, const Status& fault) {
  const int num_gpus = NumGpus();
  const bool shared = num_gpus > 0 && num_gpus < world.size && RanksMayShareAGpu();
  if (num_gpus < world.size && !shared) {
    ASSERT_FALSE(OnStandIn()) << "the stand-in is not found";
    GTEST_SKIP() << "needs " << world.size << " GPUs; this process sees " << num_gpus;
  }
  std::string dir = testing::TempDir() + "/store.XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  const int per_node = world.size / world.num_nodes;
  const auto run = [&](int r) {
    FakeFileStore store(dir);
    const auto fabric = std::make_shared<Fabric>();
    auto host = CreateHostGroup({.rank = Rank(r),
                                 .world_size = world.size,
                                 .local_rank = LocalRank(r % per_node),
                                 .local_world_size = per_node,
                                 .group_rank = GroupRank(r / per_node),
                                 .group_world_size = world.num_nodes,
                                 .round = Round(world.round),
                                 .setup_timeout = seconds(30),
                                 .timeout = world.timeout},
                                &store, fabric);
    ASSERT_TRUE(host.ok()) << host.status();
    StatusOr<NcclDevice> device = OpenNcclDevice({DeviceType::kCuda, GpuOf(r)}, r);
    ASSERT_TRUE(device.ok()) << device.status();
    const bool broken = r == 0 && !fault.ok();
    auto group = CreateNcclGroup(*std::move(host), broken ? StatusOr<NcclDevice>(fault) : device);
    body({r, group.ok() ? StatusOr<Communicator>(Communicator(*std::move(group))) : group.status(), fabric,
          *device});
  };
  shared ? RunInProcesses(world.size, run) : RunInThreads(world.size, run);
  std::filesystem::remove_all(dir);
}

void WithGpuRanks(const GpuWorld& world, const std::function<void(GpuRank&)>& body) {
  ConnectGpuRanks(world, [&](GpuConnection connection) {
    ASSERT_TRUE(connection.comm.ok()) << connection.comm.status();
    GpuRank rank(*std::move(connection.comm), connection.fabric, connection.device.context);
    body(rank);
  });
}

}  // namespace ddprun
