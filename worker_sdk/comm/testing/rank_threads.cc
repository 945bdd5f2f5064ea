#include "worker_sdk/comm/testing/rank_threads.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/comm/testing/file_store.h"

namespace ddprun {

void WithRanks(int world, const std::function<void(Communicator&)>& body) {
  std::string dir = testing::TempDir() + "/store.XXXXXX";
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      FakeFileStore store(dir);
      auto comm = CreateHostCommunicator({.rank = Rank(r),
                                          .world_size = world,
                                          .local_rank = LocalRank(r),
                                          .local_world_size = world,
                                          .round = Round(1)},
                                         &store);
      ASSERT_TRUE(comm.ok()) << comm.status();
      body(*comm);
    });
  }
  for (std::thread& t : threads) t.join();
  std::filesystem::remove_all(dir);
}

}  // namespace ddprun
