#include "worker_sdk/comm/nccl/testing/gpu_ranks.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/testing/file_store.h"

namespace ddprun {
namespace {

int NumGpus() {
  const StatusOr<const CudaDriver*> driver = OpenCudaDriver();
  if (!driver.ok()) return 0;
  const auto devices = ListCudaDevices(**driver);
  return devices.ok() ? static_cast<int>(devices->size()) : 0;
}

// Newer versions of NCCL accept several ranks on one GPU.
bool RanksMayShareAGpu() {
  const char* const enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return enabled != nullptr && std::string(enabled) == "1";
}

}  // namespace

void ConnectGpuRanks(const GpuWorld& world, const GpuConnected& body, const Status& fault) {
  const int num_gpus = NumGpus();
  const bool shared = num_gpus > 0 && num_gpus < world.size && RanksMayShareAGpu();
  if (num_gpus < world.size && !shared) {
    ASSERT_EQ(std::getenv("DDPRUN_STAND_IN_DEVICES"), nullptr) << "the stand-in is not found";
    GTEST_SKIP() << "needs " << world.size << " GPUs; this process sees " << num_gpus;
  }
  std::string dir = testing::TempDir() + "/store.XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  std::vector<std::thread> threads;
  const int per_node = world.size / world.num_nodes;
  for (int r = 0; r < world.size; ++r) {
    threads.emplace_back([&, r] {
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
      StatusOr<NcclDevice> device = OpenNcclDevice({DeviceType::kCuda, shared ? r % num_gpus : -1}, r);
      ASSERT_TRUE(device.ok()) << device.status();
      const bool broken = r == 0 && !fault.ok();
      auto group = CreateNcclGroup(*std::move(host), broken ? StatusOr<NcclDevice>(fault) : device);
      body({r, group.ok() ? StatusOr<Communicator>(Communicator(*std::move(group))) : group.status(), fabric,
            *device});
    });
  }
  for (std::thread& t : threads) t.join();
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
