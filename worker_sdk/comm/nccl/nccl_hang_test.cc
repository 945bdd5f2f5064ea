// Calls of NCCL that hang, are slow or fail, in one of several processes on the stand-in for CUDA and NCCL. Without a toolkit there is
// nothing to test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/fabric.h"
#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/comm/nccl/testing/stand_in_functions.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/device/cuda/stream.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

#ifndef DDPRUN_HAVE_CUDA

TEST(NcclHangTest, ABuildWithoutAToolkitHasNoGpus) {
  EXPECT_EQ(OpenNcclDevice({DeviceType::kCuda, 0}, 0).status().code(), StatusCode::kFailedPrecondition);
}

#else

// What a rank does after an all-reduce.
constexpr char kAbort[] = "abort";    // the last rank calls Abort while the others are in another all-reduce
constexpr char kRetire[] = "retire";  // likewise, and the other ranks retire their fabric
constexpr char kLeave[] = "leave";    // all destroy their communicators

// The limit of ncclCommAbort and of ncclCommDestroy, and what may be added to it.
constexpr Duration kEndLimit = seconds(10), kSlack = seconds(8);

Duration Since(TimePoint start) { return Clock::now() - start; }

// The process of a rank. RankProcess::args: what it does, the rank whose stand-in has variables, and these.
class HangRank {
 public:
  HangRank(const RankProcess& self, FakeFileStore& store)
      : self_(self), store_(store), rank_(self.options.rank.value()), last_(self.options.world_size - 1) {
    for (size_t i = 2; i < self.args.size() && self.args[1] == StrCat(rank_); ++i) {
      const std::vector<std::string> words = StrSplit(self.args[i], '=');
      setenv(StrCat("DDPRUN_STAND_IN_", words[0]).c_str(), words[1].c_str(), 1);
    }
  }

  // Returns the error of the setup or of an operation.
  Status Run() {
    DDPRUN_ASSIGN_OR_RETURN(const NcclDevice device, OpenNcclDevice({DeviceType::kCuda, rank_}, rank_));
    const auto fabric = std::make_shared<Fabric>();
    HostCommunicatorOptions options = self_.options;
    if (self_.args[0] == "init") options.setup_timeout = seconds(3);
    DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<HostGroupInterface> host,
                            CreateHostGroup(options, &store_, fabric));
    DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<internal::Group> group, CreateNcclGroup(std::move(host), device));
    Communicator comm(std::move(group));
    DDPRUN_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create(device.context));
    const OpOptions on{.stream = {comm.device(), stream.get()}};
    DDPRUN_ASSIGN_OR_RETURN(Buffer buffer, comm.Allocate(DType::kFloat32, 100, comm.device()));
    DDPRUN_RETURN_IF_ERROR(comm.AllReduce(buffer.tensor(), ReduceOp::kSum, on).Wait());
    if (self_.args[0] == kLeave) {
      start_ = Clock::now();
      comm = {};
      Note("took", Since(*start_));
      return OkStatus();
    }
    const Status status = EndTogether(comm, buffer.tensor(), on);
    if (self_.args[0] == kRetire) {
      fabric->Retire(AbortedError("over"));
      Note("retired", Since(*start_));
      EXPECT_EQ(CountsOfStandIn().communicators, 0);
      EXPECT_EQ(CountsOfStandIn().events, 0);
    }
    if (self_.args[0] == kAbort && status.code() == StatusCode::kInternal) {
      // Is never freed: NCCL may still access the memory.
      [[maybe_unused]] static auto* volatile kept = new Buffer(std::move(buffer));
    }
    return status;
  }

 private:
  Status EndTogether(Communicator& comm, const Tensor& tensor, const OpOptions& on) {
    if (rank_ == last_) {
      for (int r = 0; r < last_; ++r)
        DDPRUN_RETURN_IF_ERROR(store_.Get(StrCat("waits/", r), seconds(60)).status());
      start_ = Clock::now();
      comm.Abort("over");
      return comm.AllReduce(tensor, ReduceOp::kSum, on).Wait();
    }
    Work work = comm.AllReduce(tensor, ReduceOp::kSum, on);
    DDPRUN_RETURN_IF_ERROR(work.WaitOn(on.stream));  // NCCL was called
    start_ = Clock::now();
    DDPRUN_RETURN_IF_ERROR(store_.Set(StrCat("waits/", rank_), ""));
    const Status status = work.Wait();
    Note("took", Since(*start_));
    return status;
  }

  void Note(const std::string& what, Duration time) {
    EXPECT_EQ(store_.Set(StrCat(what, "/", rank_), StrCat(ToMillis(time))), OkStatus());
  }

  const RankProcess& self_;
  FakeFileStore& store_;
  const int rank_, last_;
  std::optional<TimePoint> start_;
};

int RunProcess(const RankProcess& self) {
  FakeFileStore store(self.store_dir);
  const Status status = HangRank(self, store).Run();
  EXPECT_EQ(store.Set(StrCat("outcome/", self.options.rank.value()), status.ToString()), OkStatus());
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

// Runs ranks on one node. All of them must exit with 0 by themselves: nothing is left, unless PRINT_LEAKS is set.
class Ranks {
 public:
  Ranks(int size, const std::vector<std::string>& args) : ranks_({size}, args) {
    ranks_.StartAll();
    for (int r = 0; r < size; ++r) {
      const std::optional<int> status = ranks_.Wait(r, seconds(60));
      EXPECT_TRUE(status.has_value()) << "rank " << r << " is still running";
      EXPECT_EQ(status.value_or(0), 0) << "rank " << r;
    }
  }
  std::string Outcome(int rank) { return Get("outcome", rank).value_or("(no outcome)"); }
  // What the rank has noted; -1: nothing.
  Duration Time(const char* what, int rank) {
    return milliseconds(std::stoll(Get(what, rank).value_or("-1")));
  }

 private:
  StatusOr<std::string> Get(const char* what, int rank) {
    return ranks_.store().Get(StrCat(what, "/", rank), seconds(0));
  }
  RankProcesses ranks_;
};

TEST(NcclHangTest, OperationsFailAndTheProcessCanExitIfAnAbortNeverReturns) {
  Ranks ranks(3, {kAbort, "0", "HANG=ncclCommAbort", "PRINT_LEAKS=1"});
  EXPECT_THAT(ranks.Outcome(0),
              StartsWith("INTERNAL: rank 2 of round 7 gave up: over; ncclCommAbort has not returned"));
  EXPECT_THAT(ranks.Outcome(0), HasSubstr("exit the process"));
  EXPECT_GE(ranks.Time("took", 0), kEndLimit);
  EXPECT_LT(ranks.Time("took", 0), kEndLimit + kSlack);
  for (const int r : {1, 2}) EXPECT_EQ(ranks.Outcome(r), "ABORTED: rank 2 of round 7 gave up: over");
  EXPECT_LT(ranks.Time("took", 1), kSlack);
}

TEST(NcclHangTest, RetireWaitsForAnAbortThatTakesLongerThanItsLimit) {
  constexpr Duration kLongAbort = kEndLimit + seconds(3);
  Ranks ranks(3, {kRetire, "0", "HANG=ncclCommAbort", StrCat("HANG_MS=", ToMillis(kLongAbort))});
  EXPECT_THAT(ranks.Outcome(0), HasSubstr("ncclCommAbort has not returned"));
  EXPECT_GE(ranks.Time("took", 0), kEndLimit);
  EXPECT_LT(ranks.Time("took", 0), kLongAbort) << "the operation has waited for the abort";
  EXPECT_GE(ranks.Time("retired", 0), kLongAbort);
  EXPECT_LT(ranks.Time("retired", 1), kSlack);
}

TEST(NcclHangTest, AnOperationFailsOnlyWhenASlowAbortHasReturned) {
  Ranks ranks(3, {kAbort, "1", "HANG=ncclCommAbort", "HANG_MS=1500"});
  for (const int r : {0, 1, 2}) EXPECT_EQ(ranks.Outcome(r), "ABORTED: rank 2 of round 7 gave up: over");
  EXPECT_GE(ranks.Time("took", 1), milliseconds(1500));
  EXPECT_LT(ranks.Time("took", 0), milliseconds(1500)) << "the other rank has waited";
}

TEST(NcclHangTest, TheDestructorGivesUpAFinalizationThatNeverCompletes) {
  Ranks ranks(3, {kLeave, "1", "HANG=ncclCommFinalize"});
  for (const int r : {0, 1, 2}) {
    EXPECT_EQ(ranks.Outcome(r), "OK");
    EXPECT_GE(ranks.Time("took", r), milliseconds(700)) << "it has not waited for the other ranks";
    EXPECT_LT(ranks.Time("took", r), kEndLimit) << "the limit is 1 s";
  }
}

TEST(NcclHangTest, TheDestructorGivesUpADestroyThatNeverReturns) {
  Ranks ranks(2, {kLeave, "1", "HANG=ncclCommDestroy", "PRINT_LEAKS=1"});
  EXPECT_EQ(ranks.Outcome(1), "OK");
  EXPECT_GE(ranks.Time("took", 1), kEndLimit);
  EXPECT_LT(ranks.Time("took", 1), kEndLimit + kSlack);
  EXPECT_LT(ranks.Time("took", 0), kSlack);
}

TEST(NcclHangTest, AnInitializationThatNeverCompletesEndsWithTheSetupTimeout) {
  Ranks ranks(3, {"init", "1", "HANG=ncclCommInitRankConfig"});
  for (const int r : {0, 1, 2}) {
    EXPECT_THAT(ranks.Outcome(r), StartsWith("DEADLINE_EXCEEDED: NCCL: rank "));
    EXPECT_THAT(ranks.Outcome(r), HasSubstr("has not finished NCCL's initialization after "));
  }
}

TEST(NcclHangTest, ASlowInitializationSucceeds) {
  Ranks ranks(3, {kLeave, "1", "HANG=ncclCommInitRankConfig", "HANG_MS=500"});
  for (const int r : {0, 1, 2}) EXPECT_EQ(ranks.Outcome(r), "OK");
}

TEST(NcclHangTest, ACallThatFailsIsTheErrorOfAllRanks) {
  struct Case {
    std::string function, rank, name;
  };
  for (const Case& c : {Case{"ncclGetUniqueId", "0", "ncclGetUniqueId"},
                        Case{"ncclCommInitRankConfig", "2", "ncclCommInitRankConfig"},
                        Case{"ncclAllReduce", "1", "gave up: all-reduce"}}) {
    SCOPED_TRACE(c.function);
    Ranks ranks(3, {kAbort, c.rank, "FAIL=" + c.function, "FAIL_WITH=3"});
    for (const int r : {0, 1, 2}) {
      EXPECT_THAT(ranks.Outcome(r), HasSubstr(StrCat("rank ", c.rank, " of round 7")));
      EXPECT_THAT(ranks.Outcome(r), HasSubstr(c.name + ": ncclInternalError"));
    }
  }
}

TEST(NcclHangTest, TheDestructorAbortsIfTheFinalizationFails) {
  Ranks ranks(2, {kLeave, "1", "FAIL=ncclCommFinalize"});
  EXPECT_EQ(ranks.Outcome(1), "OK");
  EXPECT_LT(ranks.Time("took", 1), kSlack);
}

#endif  // DDPRUN_HAVE_CUDA

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
#ifdef DDPRUN_HAVE_CUDA
  if (auto self = ddprun::RankProcess::Self()) return ddprun::RunProcess(*self);
#endif
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
