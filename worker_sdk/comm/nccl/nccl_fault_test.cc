// Kills and stops processes that run operations on GPUs, on the stand-in for CUDA and NCCL. The survivors' processes exit
// normally: the stand-in ends a process that leaves a stream, an event, memory or a communicator behind. Without a toolkit there
// is nothing to test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/cuda/stream.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

// All-reduces until one fails. Reports the beginning and the error in the store. Arguments: a variable of the stand-in that one
// rank has, its value, and the rank.
Status RunRank(RankProcess& self, FakeFileStore& store) {
  self.options.timeout = seconds(2);
  if (self.args.size() == 3 && self.args[2] == StrCat(self.options.rank.value())) {
    setenv(self.args[0].c_str(), self.args[1].c_str(), 1);
  }
  const StatusOr<NcclDevice> device =
      OpenNcclDevice({DeviceType::kCuda, -1}, static_cast<int>(self.options.local_rank.value()));
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<HostGroupInterface> host, CreateHostGroup(self.options, &store));
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<internal::Group> group, CreateNcclGroup(std::move(host), device));
  Communicator comm(std::move(group));
  DDPRUN_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create(device->context));
  const OpOptions on{.stream = {comm.device(), stream.get()}};
  Status status;
  {
    DDPRUN_ASSIGN_OR_RETURN(const Buffer buffer, comm.Allocate(DType::kFloat32, 100, comm.device()));
    for (int i = 0; status.ok(); ++i) {
      std::vector<Work> works;
      for (int k = 0; k < 3; ++k) works.push_back(comm.AllReduce(buffer.tensor(), ReduceOp::kSum, on));
      for (Work& work : works) status.Update(work.Wait());
      if (i == 3) DDPRUN_RETURN_IF_ERROR(store.Set(StrCat("runs/", comm.rank()), ""));
    }
  }
  if (!device->context->lost()) {
    DDPRUN_RETURN_IF_ERROR(stream.Await(DeadlineAfter(seconds(20)), "the end"));
  }
  return store.Set(StrCat("error/", comm.rank()), status.message());
}

int RunProcess(RankProcess& self) {
  FakeFileStore store(self.store_dir);
  const Status status = RunRank(self, store);
  if (status.ok()) return 0;
  (void)store.Set(StrCat("error/", self.options.rank.value()), StrCat("the test failed: ", status.message()));
  return 1;
}

struct Case {
  std::string name;
  std::vector<int> ranks_of_node;
  int victim = 0;
  int signo = 0;
};

class NcclProcessTest : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Faults, NcclProcessTest,
                         testing::Values(Case{"KillOneOfTwo", {2}, 1, SIGKILL},
                                         Case{"KillTheFirst", {3}, 0, SIGKILL},
                                         Case{"KillOnTheOtherNode", {2, 2}, 3, SIGKILL},
                                         Case{"KillTheFirstOfTheOtherNode", {1, 2}, 1, SIGKILL},
                                         Case{"StopOne", {3}, 1, SIGSTOP},
                                         Case{"StopOnTheOtherNode", {2, 1}, 2, SIGSTOP}),
                         [](const auto& info) { return info.param.name; });

TEST_P(NcclProcessTest, TheErrorNamesTheRank) {
#ifndef DDPRUN_HAVE_CUDA
  const StatusOr<NcclDevice> device = OpenNcclDevice({DeviceType::kCuda, -1}, 0);
  EXPECT_EQ(device.status().code(), StatusCode::kFailedPrecondition);
#else
  const Case& fault = GetParam();
  RankProcesses ranks(fault.ranks_of_node, {});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) {
    const StatusOr<std::string> runs = ranks.store().Get(StrCat("runs/", r), seconds(60));
    ASSERT_TRUE(runs.ok()) << "rank " << r << ": "
                           << ranks.store().Get(StrCat("error/", r), seconds(0)).value_or("no error");
  }
  ranks.Kill(fault.victim, fault.signo);
  const std::string name = StrCat("rank ", fault.victim);
  for (int r = 0; r < ranks.world_size(); ++r) {
    if (r == fault.victim) continue;
    const StatusOr<std::string> error = ranks.store().Get(StrCat("error/", r), seconds(60));
    ASSERT_TRUE(error.ok()) << error.status();
    EXPECT_THAT(*error, HasSubstr(fault.signo == SIGKILL ? StrCat(name, " of round 7 is gone")
                                                         : StrCat("waiting for ", name)));
    const std::optional<int> status = ranks.Wait(r, seconds(60));
    ASSERT_TRUE(status.has_value());
    EXPECT_EQ(*status, 0) << "rank " << r;
  }
  if (fault.signo == SIGSTOP) {
    EXPECT_TRUE(ranks.IsStopped(fault.victim)) << "the fault did not happen";
  }
#endif
}

#ifdef DDPRUN_HAVE_CUDA

// Runs the ranks of two nodes, one of which has `variable`; returns their errors.
std::vector<std::string> ErrorsWith(const std::string& variable, const std::string& value, int rank) {
  RankProcesses ranks({2, 1}, {StrCat("DDPRUN_STAND_IN_", variable), value, StrCat(rank)});
  ranks.StartAll();
  std::vector<std::string> errors;
  for (int r = 0; r < ranks.world_size(); ++r) {
    errors.push_back(ranks.store().Get(StrCat("error/", r), seconds(60)).value_or("none after 60 s"));
    const std::optional<int> status = ranks.Wait(r, seconds(60));
    EXPECT_TRUE(status.has_value() && WIFEXITED(*status)) << "rank " << r << " was killed by a signal";
  }
  return errors;
}

TEST(NcclFaultTest, AGpuThatIsLostEndsTheOperationsOfAllRanks) {
  for (const std::string& error : ErrorsWith("LOST_AFTER", "60", 1)) {
    EXPECT_THAT(error, HasSubstr("rank 1 of round 7 gave up: "));
    EXPECT_THAT(error, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
}

TEST(NcclFaultTest, OneGpuWithoutMemoryFailsTheAllocationOfAllRanks) {
  for (const std::string& error : ErrorsWith("NO_MEMORY_AT", "1", 2)) {
    EXPECT_THAT(error, HasSubstr("the test failed: allocate: rank 2 of round 7: "));
    EXPECT_THAT(error, HasSubstr("400 bytes"));
  }
}

#endif  // DDPRUN_HAVE_CUDA

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (auto self = ddprun::RankProcess::Self()) return ddprun::RunProcess(*self);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
