// The contract of communicator.h, for ranks on one machine and on hosts with networks of their own: results, and the
// errors after a rank has died or stopped, or a host was cut off. The cases on hosts skip themselves without root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "tests/fault/testing/hosts.h"
#include "tests/fault/testing/process.h"
#include "worker_sdk/comm/host/fault_board.h"
#include "worker_sdk/comm/host/fault_scenarios.h"
#include "worker_sdk/comm/host/rank_scenarios.h"
#include "worker_sdk/comm/testing/file_store.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

// How ranks are placed.
struct Placement {
  std::vector<int> ranks_of_node;
  bool on_hosts = false;  // each node is a host with a network of its own
};

std::string NameOf(const testing::TestParamInfo<Placement>& info) {
  return StrCat(info.param.on_hosts ? "hosts_" : "machine_", StrJoin(info.param.ranks_of_node, "_"));
}

class CollectivesTest : public testing::TestWithParam<Placement> {
 protected:
  void SetUp() override {
    if (!GetParam().on_hosts) return;
    static const std::string why_not = Hosts::WhyNot();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
    hosts_ = std::make_unique<Hosts>(num_nodes());
  }
  void TearDown() override { RemoveFiles(); }

  // Ends the processes of the last Start, and removes what they have left in the store.
  void RemoveFiles() {
    processes_.clear();
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }

  int num_nodes() const { return static_cast<int>(GetParam().ranks_of_node.size()); }
  int world() const {
    int n = 0;
    for (const int ranks : GetParam().ranks_of_node) n += ranks;
    return n;
  }
  int last() const { return world() - 1; }
  Hosts& hosts() { return *hosts_; }
  FakeFileStore store() const { return FakeFileStore(dir_); }
  const std::string& dir() const { return dir_; }
  Process& process(int rank) { return *processes_[rank]; }

  // Starts all ranks with this scenario.
  void Start(const std::vector<std::string>& args) {
    RemoveFiles();
    dir_ = testing::TempDir() + "/ranks.XXXXXX";
    ASSERT_NE(mkdtemp(dir_.data()), nullptr);
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    for (int node = 0, rank = 0; node < num_nodes(); ++node) {
      const std::string address = hosts_ != nullptr ? hosts_->address(node) : "127.0.0.1";
      for (int i = 0; i < GetParam().ranks_of_node[node]; ++i, ++rank) {
        const Environment variables =
            RankProcess::Variables(GetParam().ranks_of_node, rank, dir_, args, address);
        processes_.push_back(hosts_ != nullptr
                                 ? hosts_->Start(node, {self}, variables)
                                 : std::make_unique<Process>(std::vector{self}, Stdio::kPipes, variables));
      }
    }
  }

  void ExpectEnd(int rank, int code, Duration timeout = seconds(60)) {
    SCOPED_TRACE(StrCat("rank ", rank));
    const auto end = process(rank).Wait(timeout);
    ASSERT_TRUE(end.has_value()) << "still running";
    EXPECT_EQ(end->code, code) << process(rank).err();
  }

  // Runs a scenario that succeeds on all ranks.
  void Run(const std::vector<std::string>& args) {
    SCOPED_TRACE(StrJoin(args, " "));
    Start(args);
    for (int r = 0; r < world(); ++r) ExpectEnd(r, 0);
  }

  std::string OutcomeOf(int rank) {
    return store().Get(StrCat("outcome/", rank), seconds(10)).value_or("(no outcome)");
  }

  // `victim` sends itself a signal within an operation of this kind.
  void Fault(const std::string& kind, int victim, int signo) {
    SCOPED_TRACE(StrCat(kind, ", victim ", victim, ", signal ", signo));
    Start({"fault", kind, "50000", StrCat(victim), StrCat(signo), "4", "100000"});
    FaultBoard board(dir());
    for (int r = 0; r < world(); ++r) {
      if (r != victim) ExpectEnd(r, kEnded);
    }
    const int64_t fired = board.fault_ns(victim).load();
    ASSERT_NE(fired, 0) << "the fault has not fired";
    const Duration limit = seconds(1) + (signo == SIGSTOP ? kFaultDeadline : Duration::zero());
    for (int r = 0; r < world(); ++r) {
      if (r == victim) continue;
      EXPECT_LT(board.error_ns(r).load() - fired, std::chrono::nanoseconds(limit).count()) << "rank " << r;
      EXPECT_THAT(OutcomeOf(r), HasSubstr(signo == SIGSTOP ? StrCat("waiting for rank ", victim)
                                                           : StrCat("rank ", victim, " of round 7 is gone")))
          << "rank " << r;
    }
  }

 private:
  std::unique_ptr<Hosts> hosts_;
  std::string dir_;
  std::vector<std::unique_ptr<Process>> processes_;
};

TEST_P(CollectivesTest, ResultsAreThoseOfTheDefinition) {
  Run({"random", "11", "60"});
  Run({"chain"});
  Run({"in-place"});
  Run({"overlap", "12", "40"});
}

TEST_P(CollectivesTest, GroupsAndBuffers) {
  Run({"groups"});
  Run({"allocate"});
}

class SeveralRanksTest : public CollectivesTest {};

TEST_P(SeveralRanksTest, Messages) {
  Run({"message-random", "13", "80"});
  Run({"message-ring"});
}

TEST_P(SeveralRanksTest, ARankThatDiesOrStopsIsNamedByAllOthers) {
  Fault("all-reduce", last(), SIGKILL);
  Fault("messages", 0, SIGKILL);
  Fault("shared-in-place", 0, SIGSTOP);
  Fault("barrier", last(), SIGSTOP);
}

class CutTest : public CollectivesTest {};

TEST_P(CutTest, AHostThatIsCutOffIsNamedByAllOthers) {
  const int first_cut = world() - GetParam().ranks_of_node.back();
  Start({"forever"});
  for (int r = 0; r < world(); ++r) ASSERT_TRUE(store().Get(StrCat("ready/", r), seconds(60)).ok()) << r;
  const TimePoint cut = std::chrono::steady_clock::now();
  hosts().Cut(num_nodes() - 1);
  for (int r = 0; r < world(); ++r) {
    // The silence limit, at most 1 s to detect it, and 1 s until all ranks know.
    ExpectEnd(r, kEnded, cut + seconds(7) - std::chrono::steady_clock::now());
    const std::string outcome = OutcomeOf(r);
    EXPECT_THAT(outcome, HasSubstr("is cut or drops packets")) << "rank " << r;
    if (r >= first_cut) continue;
    EXPECT_THAT(outcome, HasSubstr(StrCat("no answer from rank ", first_cut))) << "rank " << r;
  }
}

const Placement kOneRank = {{1}};
const Placement kMachines[] = {{{2}}, {{3}}, {{4}}, {{5}}, {{8}}};
const Placement kSomeMachines[] = {{{3}}, {{8}}};
const Placement kHosts[] = {
    {{1, 1}, true}, {{2, 1}, true}, {{1, 3}, true}, {{2, 2}, true}, {{1, 1, 1}, true}};

const Placement kSomeHosts[] = {{{1, 1}, true}, {{2, 1}, true}, {{1, 1, 1}, true}};

INSTANTIATE_TEST_SUITE_P(One, CollectivesTest, testing::Values(kOneRank), NameOf);
INSTANTIATE_TEST_SUITE_P(Machine, CollectivesTest, testing::ValuesIn(kMachines), NameOf);
INSTANTIATE_TEST_SUITE_P(Hosts, CollectivesTest, testing::ValuesIn(kHosts), NameOf);
INSTANTIATE_TEST_SUITE_P(Machine, SeveralRanksTest, testing::ValuesIn(kSomeMachines), NameOf);
INSTANTIATE_TEST_SUITE_P(Hosts, SeveralRanksTest, testing::ValuesIn(kHosts), NameOf);
INSTANTIATE_TEST_SUITE_P(Hosts, CutTest, testing::ValuesIn(kSomeHosts), NameOf);

}  // namespace
}  // namespace ddprun
