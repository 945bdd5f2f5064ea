// One rank of three has a GPU, a driver or an NCCL that differs or fails, on the stand-in for CUDA and NCCL: all ranks get an
// error that names it. A rank that is only slow is no error. Without a toolkit there is nothing to test.
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

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kOdd = 1;
// Instead of a setting of the stand-in: the process of the odd rank stops itself when NCCL begins to connect.
constexpr char kStop[] = "STOP";
// Likewise: all ranks wait for the test before they go on.
constexpr char kSlow[] = "SLOW";

#ifdef DDPRUN_HAVE_CUDA
ncclResult_t StopThisProcess(ncclComm_t* /*comm*/, int /*size*/, ncclUniqueId /*id*/, int /*rank*/,
                             ncclConfig_t* /*config*/) {
  raise(SIGSTOP);
  return ncclInternalError;
}
#endif

void MeetInStore(const RankProcess& self, FakeFileStore& store) {
  (void)store.Set(StrCat("here/", self.options.rank.value()), "");
  for (int r = 0; r < self.options.world_size; ++r) (void)store.Get(StrCat("here/", r), seconds(60));
}

// Connects, all-reduces memory of the communicator, and sends it to the next rank. Arguments: the odd rank's settings of the stand-in, or kStop, or kSlow.
Status RunRank(RankProcess& self, FakeFileStore& store) {
  NcclLibrary library;
  MeetInStore(self, store);
  self.options.setup_timeout = seconds(5);
  const bool odd = self.options.rank.value() == kOdd;
  if (odd) {
    for (const std::string& setting : self.args) {
      const std::vector<std::string> parts = StrSplit(StrCat("DDPRUN_STAND_IN_", setting, "="), '=');
      setenv(parts[0].c_str(), parts[1].c_str(), 1);
    }
  }
  StatusOr<NcclDevice> device =
      OpenNcclDevice({DeviceType::kCuda, -1}, static_cast<int>(self.options.local_rank.value()));
#ifdef DDPRUN_HAVE_CUDA
  if (odd && self.args[0] == kStop) {
    library = *device->nccl;
    library.ncclCommInitRankConfig = StopThisProcess;
    device->nccl = &library;
  }
#endif
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<HostGroupInterface> host, CreateHostGroup(self.options, &store));
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<internal::Group> group, CreateNcclGroup(std::move(host), device));
  Communicator comm(std::move(group));
  DDPRUN_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create(device->context));
  DDPRUN_ASSIGN_OR_RETURN(const Buffer buffer, comm.Allocate(DType::kFloat32, 100, comm.device()));
  const OpOptions on{.stream = {comm.device(), stream.get()}};
  const bool waits = self.args[0] == kSlow;
  if (waits) {
    DDPRUN_RETURN_IF_ERROR(store.Set(StrCat("waits/", comm.rank()), ""));
    DDPRUN_RETURN_IF_ERROR(store.Get("go", seconds(60)).status());
  }
  Status status;
  for (int i = 0; i < (waits ? 20 : 1); ++i) {
    status.Update(comm.AllReduce(buffer.tensor(), ReduceOp::kSum, on).Wait());
    if (i == 0 && waits) DDPRUN_RETURN_IF_ERROR(store.Set(StrCat("first/", comm.rank()), ""));
  }
  const int next = (comm.rank() + 1) % comm.size(), previous = (comm.rank() + comm.size() - 1) % comm.size();
  const Tensor all = buffer.tensor(), half = {all.data, 50, all.dtype, all.device};
  const Tensor other = {static_cast<float*>(all.data) + 50, 50, all.dtype, all.device};
  Work sent = comm.Send(half, next, on), received = comm.Receive(other, previous, on);
  status.Update(sent.Wait());
  status.Update(received.Wait());
  if (!device->context->lost()) DDPRUN_RETURN_IF_ERROR(stream.Await(DeadlineAfter(seconds(20)), "the end"));
  return status;
}

int RunProcess(RankProcess& self) {
  FakeFileStore store(self.store_dir);
  const Status status = RunRank(self, store);
  (void)store.Set(StrCat("error/", self.options.rank.value()), status.ok() ? "OK" : status.ToString());
  return 0;
}

#ifdef DDPRUN_HAVE_CUDA

std::string ErrorOf(RankProcesses& ranks, int rank) {
  return ranks.store().Get(StrCat("error/", rank), seconds(60)).value_or("none after 60 s");
}

// The processes exit normally: the stand-in ends one that leaves something behind.
void ExpectExit(RankProcesses& ranks, int rank) {
  EXPECT_EQ(ranks.Wait(rank, seconds(60)), std::optional<int>(0)) << "rank " << rank;
}

// The results of all ranks.
std::vector<std::string> ErrorsWith(const std::vector<std::string>& settings) {
  RankProcesses ranks({2, 1}, settings);
  ranks.StartAll();
  std::vector<std::string> errors;
  for (int r = 0; r < ranks.world_size(); ++r) errors.push_back(ErrorOf(ranks, r));
  for (int r = 0; r < ranks.world_size(); ++r) ExpectExit(ranks, r);
  return errors;
}

TEST(NcclOneRankTest, WithoutAFaultAllIsWell) {
  for (const std::string& error : ErrorsWith({"DELAY_US=100"})) EXPECT_EQ(error, "OK");
}

struct Fault {
  std::string name;
  std::vector<std::string> settings;
  std::string code;
  std::vector<std::string> texts;
  // The deadlines of all ranks pass at the same time, so that each node may have the error of its own rank.
  bool by_deadline = false;
};

class OneRankFaultTest : public testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    , OneRankFaultTest,
    testing::Values(
        Fault{"BusyDevice",
              {"RETAIN_ERROR=46"},
              "FAILED_PRECONDITION: GPU: rank 1 of round 7: GPU 1 is not available",
              {"another process uses it in exclusive mode", "nvidia-smi -q -d COMPUTE"}},
        Fault{"NoMemoryForTheContext",
              {"RETAIN_ERROR=2"},
              "RESOURCE_EXHAUSTED: GPU: rank 1 of round 7: cuDevicePrimaryCtxRetain on GPU 1: ",
              {"CUDA_ERROR_OUT_OF_MEMORY"}},
        Fault{"OldDriver",
              {"DRIVER_VERSION=11080"},
              "FAILED_PRECONDITION: GPU: rank 1 of round 7: ",
              {"the NVIDIA driver is of CUDA 11.8; this library needs 12.0 or newer"}},
        Fault{"DriverOfAnotherVersionThanTheKernel",
              {"INIT_ERROR=803"},
              "FAILED_PRECONDITION: GPU: rank 1 of round 7: ",
              {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "restart the machine"}},
        Fault{"NoDevice",
              {"DEVICES=0"},
              "FAILED_PRECONDITION: GPU: rank 1 of round 7: ",
              {"this process sees no GPU; check CUDA_VISIBLE_DEVICES"}},
        Fault{"NoMemory",
              {"NO_MEMORY_AT=1"},
              "RESOURCE_EXHAUSTED: allocate: rank 1 of round 7: cuMemAlloc of 400 bytes on GPU 1: ",
              {"CUDA_ERROR_OUT_OF_MEMORY"}},
        Fault{"NoPinnedMemory",
              {"NO_PINNED_MEMORY=1"},
              "RESOURCE_EXHAUSTED: rank 1 of round 7: ",
              {": staging memory for messages: cuMemHostAlloc of ",
               " bytes on GPU 1: CUDA_ERROR_OUT_OF_MEMORY"}},
        Fault{"DeviceIsTakenAway",
              {"LOST_AFTER=1", "LOST_ERROR=46"},
              "DATA_LOSS: allocate: rank 1 of round 7: ",
              {"CUDA_ERROR_DEVICE_UNAVAILABLE", "the context of GPU 1 is lost until the process exits"}},
        Fault{"AnotherMajorVersionOfNccl",
              {"NCCL_VERSION=30100"},
              "FAILED_PRECONDITION: GPU: rank 1 of round 7: libnccl.so.2 is of NCCL 3.1.0; ",
              {"install NCCL 2"}},
        Fault{
            "AnotherVersionOfNccl",
            {"NCCL_VERSION=22003"},
            "FAILED_PRECONDITION: NCCL: the ranks have different versions of NCCL: rank 0 of round 7 has 2.",
            {", rank 1 of round 7 has 2.20.3: install one version of libnccl.so.2 on all nodes"}},
        Fault{"NcclRefusesToConnect",
              {"FAIL=ncclCommInitRankConfig"},
              "UNAVAILABLE: NCCL: rank 1 of round 7: ncclCommInitRankConfig: ncclSystemError",
              {}},
        Fault{"NcclDoesNotConnect",
              {"HANG=ncclCommInitRankConfig"},
              "DEADLINE_EXCEEDED: NCCL: rank ",
              {" gave up: GPU ", " has not finished NCCL's initialization after ",
               "all ranks run, but NCCL does not connect them: check NCCL_SOCKET_IFNAME"},
              true}),
    [](const auto& info) { return info.param.name; });

TEST_P(OneRankFaultTest, IsTheErrorOfAllRanks) {
  const std::vector<std::string> errors = ErrorsWith(GetParam().settings);
  for (const std::string& error : errors) {
    EXPECT_THAT(error, testing::StartsWith(GetParam().code));
    for (const std::string& text : GetParam().texts) EXPECT_THAT(error, HasSubstr(text));
    if (!GetParam().by_deadline) {
      EXPECT_EQ(error, errors[0]);
    }
  }
}

TEST(NcclOneRankTest, ARankThatIsStoppedWhileNcclConnectsIsNamed) {
  RankProcesses ranks({2, 1}, {kStop});
  ranks.StartAll();
  for (const int r : {0, 2}) {
    EXPECT_THAT(ErrorOf(ranks, r),
                AllOf(HasSubstr("DEADLINE_EXCEEDED: NCCL: rank "), HasSubstr(" of round 7 gave up: GPU "),
                      HasSubstr(StrCat("waiting for rank ", kOdd)), Not(HasSubstr("all ranks run"))));
    ExpectExit(ranks, r);
  }
  EXPECT_TRUE(ranks.IsStopped(kOdd)) << "the fault did not happen";
}

// The others look for calls that differ meanwhile.
TEST(NcclOneRankTest, ARankThatIsStoppedForAWhileIsNoError) {
  RankProcesses ranks({2, 1}, {kSlow});
  ranks.StartAll();
  for (int r = 0; r < ranks.world_size(); ++r) {
    ASSERT_TRUE(ranks.store().Get(StrCat("waits/", r), seconds(60)).ok()) << ErrorOf(ranks, r);
  }
  ranks.Kill(kOdd, SIGSTOP);
  ASSERT_EQ(ranks.store().Set("go", ""), OkStatus());
  // For so long, the others wait for the rank. A shorter time cannot fail the test.
  EXPECT_FALSE(ranks.store().Get("first/0", milliseconds(300)).ok()) << "the rank was not stopped";
  EXPECT_TRUE(ranks.IsStopped(kOdd));
  ranks.Kill(kOdd, SIGCONT);
  for (int r = 0; r < ranks.world_size(); ++r) {
    EXPECT_EQ(ErrorOf(ranks, r), "OK");
    ExpectExit(ranks, r);
  }
}

#else

TEST(NcclOneRankTest, ABuildWithoutAToolkitHasNoGpus) {
  EXPECT_EQ(OpenNcclDevice({DeviceType::kCuda, -1}, 0).status().code(), StatusCode::kFailedPrecondition);
}

#endif  // DDPRUN_HAVE_CUDA

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (auto self = ddprun::RankProcess::Self()) return ddprun::RunProcess(*self);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
