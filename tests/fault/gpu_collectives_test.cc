// The contract of communicator.h for operations on GPUs, and what happens after a rank has died or stopped, or a host was cut off:
// on the stand-in for CUDA and NCCL, with processes on two hosts that have networks of their own. The cases skip themselves without
// root, and without a toolkit there is nothing to test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "tests/fault/testing/hosts.h"
#include "tests/fault/testing/process.h"
#include "worker_sdk/comm/host/fault_board.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/comm/nccl/testing/contract_rank.h"
#include "worker_sdk/comm/nccl/testing/fault_rank.h"
#include "worker_sdk/comm/testing/file_store.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr char kContract[] = "contract";

#ifndef DDPRUN_HAVE_CUDA

TEST(GpuCollectivesTest, ABuildWithoutAToolkitHasNoGpus) {
  EXPECT_EQ(OpenNcclDevice({DeviceType::kCuda, 0}, 0).status().code(), StatusCode::kFailedPrecondition);
}

#else

using Clock = std::chrono::steady_clock;

// The parameter: the number of ranks on each host.
class GpuCollectivesTest : public testing::TestWithParam<std::vector<int> > {
 protected:
  void SetUp() override {
    static const std::string why_not = Hosts::WhyNot();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
    hosts_ = std::make_unique<Hosts>(static_cast<int>(GetParam().size()));
  }
  void TearDown() override { RemoveFiles(); }

  // Ends the processes of the last Start, and removes what they have left in the store.
  void RemoveFiles() {
    processes_.clear();
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }

  int world() const {
    int n = 0;
    for (const int ranks : GetParam()) n += ranks;
    return n;
  }
  Hosts& hosts() { return *hosts_; }
  const std::string& dir() const { return dir_; }
  FakeFileStore store() const { return FakeFileStore(dir_); }
  Process& process(int rank) { return *processes_[rank]; }

  // Starts all ranks with these RankProcess::args.
  void Start(const std::vector<std::string>& args) {
    RemoveFiles();
    dir_ = testing::TempDir() + "/ranks.XXXXXX";
    ASSERT_NE(mkdtemp(dir_.data()), nullptr);
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const std::string runfiles = StrCat(std::filesystem::current_path().string(), "/worker_sdk/testing/gpu");
    for (int node = 0, rank = 0; node < static_cast<int>(GetParam().size()); ++node) {
      for (int i = 0; i < GetParam()[node]; ++i, ++rank) {
        Environment variables = RankProcess::Variables(GetParam(), rank, dir_, args, hosts().address(node));
        variables.emplace_back("DDPRUN_STAND_IN_DEVICES", "8");
        variables.emplace_back("LD_LIBRARY_PATH", StrCat(runfiles, "/cuda:", runfiles, "/nccl"));
        processes_.push_back(hosts().Start(node, {self}, variables));
      }
    }
  }

  void ExpectEnd(int rank, int code, TimePoint deadline = Clock::now() + seconds(60)) {
    const auto end = process(rank).Wait(deadline - Clock::now());
    ASSERT_TRUE(end.has_value()) << "rank " << rank << " is still running";
    EXPECT_EQ(end->code, code) << "rank " << rank << ": " << process(rank).out() << process(rank).err();
  }

  // Runs the fault; all other ranks must end by themselves, leave nothing, and have this in their error.
  void ExpectFault(const GpuFault& fault, const std::string& error, Duration limit) {
    SCOPED_TRACE(StrJoin(fault.ToArgs(), " "));
    Start(fault.ToArgs());
    FaultBoard board(dir());
    for (int r = 0; r < world(); ++r) {
      if (r != fault.victim) ExpectEnd(r, kFaultEnded);
    }
    const int64_t fired = board.fault_ns(fault.victim).load();
    ASSERT_NE(fired, 0) << "the fault has not fired";
    EXPECT_EQ(board.error_ns(fault.victim).load(), 0) << "the victim goes on";
    for (int r = 0; r < world(); ++r) {
      if (r == fault.victim) continue;
      EXPECT_THAT(OutcomeOf(r), HasSubstr(error)) << "rank " << r;
      EXPECT_LT(board.error_ns(r).load() - fired, std::chrono::nanoseconds(limit).count()) << "rank " << r;
    }
  }

  std::string OutcomeOf(int rank) {
    return store().Get(StrCat("outcome/", rank), seconds(10)).value_or("(no outcome)");
  }

 private:
  std::unique_ptr<Hosts> hosts_;
  std::string dir_;
  std::vector<std::unique_ptr<Process> > processes_;
};

INSTANTIATE_TEST_SUITE_P(Hosts, GpuCollectivesTest,
                         testing::Values(std::vector{1, 1}, std::vector{2, 2}, std::vector{1, 2}),
                         [](const auto& info) { return StrJoin(info.param, "_"); });

TEST_P(GpuCollectivesTest, TheContractHolds) {
  Start({kContract});
  for (int r = 0; r < world(); ++r) ExpectEnd(r, 0);
}

TEST_P(GpuCollectivesTest, ARankThatDiesOrStopsIsNamedByAllOthers) {
  const auto fault = [&](const char* kind, const char* moment, int victim) {
    GpuFault made;
    made.kind = kind;
    made.moment = moment;
    made.victim = victim;
    made.operation = "all-reduce";
    made.num_elems = 5000;
    made.number = 3;
    made.delay_ns = 100'000;
    return made;
  };
  const auto name = [](int rank) { return StrCat("rank ", rank); };
  const int last = world() - 1;
  const Duration deadline = kGpuFaultDeadline + seconds(1);
  ExpectFault(fault("kill", "operation", last), name(last) + " of round 7 is gone", seconds(1));
  ExpectFault(fault("kill", "operation", 0), name(0) + " of round 7 is gone", seconds(1));
  ExpectFault(fault("kill", "init", last), name(last) + " of round 7 is gone", seconds(1));
  ExpectFault(fault("stop", "operation", 0), "waiting for " + name(0), deadline);
  ExpectFault(fault("stop", "between", last), "waiting for " + name(last), deadline);
}

TEST_P(GpuCollectivesTest, AHostThatIsCutOffIsNamedByAllOthers) {
  GpuFault none;
  none.victim = -1;
  none.operation = "all-reduce";
  Start(none.ToArgs());
  FaultBoard board(dir());
  for (int r = 0; r < world(); ++r) {
    while (board.operation(r) < 3) {
      ASSERT_FALSE(process(r).Wait(milliseconds(1)).has_value()) << "rank " << r << " has ended";
    }
  }
  const TimePoint cut = Clock::now();
  hosts().Cut(1);
  const int first_cut = GetParam()[0];
  for (int r = 0; r < world(); ++r) {
    // The silence limit, at most 1 s to detect it, and 1 s until all ranks know.
    ExpectEnd(r, kFaultEnded, cut + seconds(7));
    EXPECT_THAT(OutcomeOf(r), HasSubstr("is cut or drops packets")) << "rank " << r;
    if (r < first_cut) {
      EXPECT_THAT(OutcomeOf(r), HasSubstr(StrCat("no answer from rank ", first_cut))) << "rank " << r;
    }
  }
}

#endif  // DDPRUN_HAVE_CUDA

int RunProcess(RankProcess& self) {
  return self.args[0] == kContract ? RunGpuContractRank(self) : RunGpuFaultRank(self);
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (auto self = ddprun::RankProcess::Self()) return ddprun::RunProcess(*self);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
