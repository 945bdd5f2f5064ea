// Random faults of ranks with GPUs, at random moments, on the stand-in for CUDA and NCCL: every other rank gets an error that
// names the victim, exits by itself, and leaves nothing. DDPRUN_FAULTS sets the number of faults, and DDPRUN_FAULT_SEED the first
// seed. Without a toolkit there is nothing to test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/fault_board.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/comm/nccl/testing/fault_rank.h"
#include "worker_sdk/comm/testing/rank_processes.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

#ifndef DDPRUN_HAVE_CUDA

TEST(NcclRandomFaultTest, ABuildWithoutAToolkitHasNoGpus) {
  EXPECT_EQ(OpenNcclDevice({DeviceType::kCuda, 0}, 0).status().code(), StatusCode::kFailedPrecondition);
}

#else

struct Kind {
  const char* kind;
  const char* moment;
};
// An odd number, so that all of them meet all numbers of ranks.
constexpr Kind kKinds[] = {
    {"kill", "operation"}, {"stop", "operation"}, {"error", "operation"}, {"hang", "operation"},
    {"lost", "operation"}, {"exit", "operation"}, {"fail", "operation"},  {"kill", "init"},
    {"kill", "abort"},     {"stop", "between"},   {"hang", "abort"},      {"leave", "between"},
    {"error", "init"},     {"stop", "abort"},     {"lost", "init"},       {"kill", "between"},
    {"exit", "init"},      {"fail", "init"},      {"exit", "abort"},      {"error", "between"},
    {"lost", "between"},   {"lost", "abort"},     {"exit", "between"},    {"stop", "init"},
    {"hang", "init"},
};
static_assert(std::size(kKinds) % 2 == 1);
// By number of ranks: 2, 3, 4 and 8.
const std::vector<std::vector<int> > kSplits[] = {{{2}, {1, 1}}, {{3}, {2, 1}}, {{4}, {2, 2}}, {{8}, {4, 4}}};

// How long a rank may take to destroy its communicators after an error.
constexpr Duration kEndLimit = seconds(5);

int64_t Setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

double Seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }
double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

GpuFault Draw(int64_t seed, int world) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  const Kind kind = kKinds[seed % std::size(kKinds)];
  GpuFault fault;
  fault.kind = kind.kind;
  fault.moment = kind.moment;
  fault.seed = 100 * seed;
  fault.victim = static_cast<int>(random() % world);
  fault.operation = kGpuOperations[random() % std::size(kGpuOperations)];
  fault.num_elems = 1 + random() % 20'000;
  fault.number = 1 + random() % 6;
  const bool early = random() % 2 == 0;
  const Duration longest = fault.moment == "abort"  ? kAbortWindow / 4
                           : fault.moment == "init" ? kInitWindow * 3 / 4
                           : early                  ? milliseconds(1)
                                                    : milliseconds(5);
  const bool any_operation = fault.moment == "operation" && (fault.kind == "kill" || fault.kind == "stop" ||
                                                             fault.kind == "exit" || fault.kind == "lost");
  if (any_operation && seed % 2 == 0) {
    fault.operation = kGpuMessages;
    fault.num_elems *= 20;
  }
  fault.delay_ns = random() % std::chrono::nanoseconds(longest).count();
  return fault;
}

bool EndsTheProcess(const GpuFault& fault) {
  return fault.kind == "kill" || fault.kind == "stop" || fault.kind == "exit";
}

// From the fault to the error on other ranks.
Duration LimitOf(const GpuFault& fault) {
  if (fault.moment == "abort") return seconds(1);
  const bool silent = fault.kind == "stop" || fault.kind == "hang";
  if (silent && fault.moment == "init") return kGpuFaultSetupTimeout + seconds(1);
  return (silent || fault.kind == "leave" ? kGpuFaultDeadline : Duration::zero()) + seconds(1);
}

testing::Matcher<std::string> ErrorOf(const GpuFault& fault, int world) {
  if (fault.moment == "abort")
    return HasSubstr(StrCat("rank ", fault.Aborter(world), " of round 7 gave up: ", kReasonOfAbort));
  const std::string name = StrCat("rank ", fault.victim);
  const auto of_round = HasSubstr(StrCat(name, " of round 7"));
  if (fault.kind == "leave") return HasSubstr(StrCat(name, " of round 7 has left"));
  if (fault.kind == "stop")
    return AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr(StrCat("waiting for ", name)));
  if (fault.kind == "error") return AllOf(of_round, HasSubstr("NCCL: ncclSystemError"));
  if (fault.kind == "lost") return AllOf(of_round, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
  if (fault.kind == "fail") return AllOf(of_round, HasSubstr(": ncclSystemError"));
  if (fault.kind == "hang" && fault.moment == "init")
    return AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("NCCL's initialization"));
  if (fault.kind == "hang")
    return AllOf(HasSubstr(StrCat(name, " of round 7 gave up")),
                 HasSubstr("its call of NCCL has not returned"));
  return HasSubstr(StrCat(name, " of round 7 is gone"));
}

// The fault has ended the victim as it should.
void ExpectEndOfVictim(RankProcesses& ranks, const GpuFault& fault) {
  if (!EndsTheProcess(fault)) return;
  if (fault.kind == "stop") {
    const TimePoint deadline = std::chrono::steady_clock::now() + seconds(60);
    while (!ranks.IsStopped(fault.victim) && std::chrono::steady_clock::now() < deadline) poll(nullptr, 0, 1);
    EXPECT_TRUE(ranks.IsStopped(fault.victim));
    return;
  }
  EXPECT_EQ(ranks.Wait(fault.victim, seconds(60)), std::optional<int>(fault.kind == "kill" ? SIGKILL : 0));
}

struct Times {
  int num_fired = 0;
  std::vector<double> detection, end;  // of each rank that ends by itself
};

// Runs the fault of `seed`.
void RunFault(int64_t seed, std::map<std::string, Times>* times_of_kind) {
  const auto& splits = kSplits[seed % std::size(kSplits)];
  const std::vector<int>& split = splits[seed / 4 % splits.size()];
  int world = 0;
  for (const int n : split) world += n;
  const GpuFault fault = Draw(seed, world);
  const int victim = fault.victim;
  SCOPED_TRACE(
      StrCat("seed ", seed, ": ", StrJoin(fault.ToArgs(), " "), ", ranks of nodes ", StrJoin(split, "+")));
  RankProcesses ranks(split, fault.ToArgs());
  FaultBoard board(ranks.store_dir());
  ranks.StartAll();
  ExpectEndOfVictim(ranks, fault);
  for (int r = 0; r < world; ++r) {
    if (r == victim && EndsTheProcess(fault)) continue;
    const std::optional<int> status = ranks.Wait(r, seconds(60));
    ASSERT_TRUE(status.has_value()) << "rank " << r << " is still running";
    EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == kFaultEnded)
        << "rank " << r << ": wait status " << *status;
  }
  const auto outcome = [&](int r) {
    return ranks.store().Get(StrCat("outcome/", r), seconds(0)).value_or("(no outcome)");
  };
  const bool slow_abort = fault.moment == "abort" && fault.kind == "hang";
  const int64_t fired = board.fault_ns(victim).load();
  ASSERT_TRUE(fired != 0 || slow_abort)
      << "the fault has not fired; outcome: " << outcome((victim + 1) % world);
  Times& times = (*times_of_kind)[StrCat(fault.kind, " ", fault.moment)];
  // Where the victim was. Otherwise the operation, or the initialization, was complete before the fault.
  const int64_t at = board.operation(victim);
  const bool in_moment = fault.moment == "between" || (fault.moment == "init" ? at == 0 : at >= fault.number);
  times.num_fired += in_moment;
  const int64_t since = fault.moment == "abort" ? board.fault_ns(fault.Aborter(world)).load() : fired;
  for (int r = 0; r < world; ++r) {
    if (r == victim && (EndsTheProcess(fault) || fault.kind == "leave")) continue;
    SCOPED_TRACE(StrCat("rank ", r));
    const double detection = Seconds(board.error_ns(r).load() - since);
    const double end = Seconds(board.ended_ns(r).load() - board.error_ns(r).load());
    const bool aborts_slowly = r == victim && fault.moment == "abort";
    EXPECT_LT(detection, Seconds(LimitOf(fault) + (aborts_slowly ? kSlowAbort : Duration::zero())));
    EXPECT_LT(end, Seconds(kEndLimit));
    if (slow_abort && r == victim) {
      EXPECT_GE(detection, Seconds(kSlowAbort)) << "the abort was not slow";
    }
    times.detection.push_back(detection);
    times.end.push_back(end);
    EXPECT_THAT(outcome(r), ErrorOf(fault, world));
  }
}

double Quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

TEST(NcclRandomFaultTest, EveryOtherRankNamesTheVictimAndEndsByItself) {
  const int64_t count = Setting("DDPRUN_FAULTS", std::size(kKinds)), first = Setting("DDPRUN_FAULT_SEED", 0);
  std::map<std::string, Times> times_of_kind;
  for (int64_t i = 0; i < count && !HasFatalFailure(); ++i) RunFault(first + i, &times_of_kind);
  int64_t num_fired = 0;
  std::printf("fault, fired in its moment, detection p50 / max, s, end p50 / max, s\n");
  for (const auto& [kind, times] : times_of_kind) {
    num_fired += times.num_fired;
    std::printf("%-16s %3d   %.3f / %.3f   %.3f / %.3f\n", kind.c_str(), times.num_fired,
                Quantile(times.detection, 0.5), Quantile(times.detection, 1), Quantile(times.end, 0.5),
                Quantile(times.end, 1));
  }
  EXPECT_GE(num_fired, count - std::max<int64_t>(count / 10, 2)) << "faults that happened in their moment";
  RecordProperty("fired", static_cast<int>(num_fired));
}

#endif  // DDPRUN_HAVE_CUDA

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (auto self = ddprun::RankProcess::Self()) return ddprun::RunGpuFaultRank(*self);
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
