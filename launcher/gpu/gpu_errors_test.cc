#include "launcher/gpu/gpu_errors.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr PciAddress kGpu0 = {0, 0x3b, 0};
constexpr PciAddress kGpu1 = {0, 0x5e, 0};
constexpr PciAddress kSwitch = {0, 0xc1, 0};
const TimePoint kStart{seconds(1000)};

// Worker 0 can use GPU 0. It started at kStart and failed 10 s later.
FailedWorker Worker(int local_rank = 0, std::vector<PciAddress> gpus = {kGpu0}) {
  return {.local_rank = LocalRank(local_rank),
          .gpus = std::move(gpus),
          .started = kStart,
          .failed = kStart + seconds(10)};
}

// A message at this many milliseconds after kStart.
SeenXid Seen(int64_t at_ms, const std::string& record, std::optional<int> worker = std::nullopt) {
  const std::optional<Xid> xid = ParseXid(record);
  EXPECT_TRUE(xid) << record;
  return {.xid = xid.value_or(Xid()),
          .at = kStart + milliseconds(at_ms),
          .worker = worker ? std::optional(LocalRank(*worker)) : std::nullopt,
          .has_our_pids = true};
}

constexpr char kBus[] =
    "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
constexpr char kFault[] = "NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python, Ch 00000008, MMU Fault";
constexpr char kEnded[] = "NVRM: Xid (PCI:0000:3b:00): 45, pid=1234, name=python, Ch 00000008";

TEST(XidEvidenceTest, NamesTheGpuTheErrorTheTimeAndTheRemedy) {
  EXPECT_THAT(XidEvidence({Seen(9600, kBus)}, Worker()),
              ElementsAre("GPU 0000:3b:00.0 reported Xid 79 (GPU has fallen off the bus) 400 ms before the "
                          "failure. Remedy: reboot "
                          "the host; if it recurs, check the GPU, its slot and its power supply"));
  EXPECT_THAT(
      XidEvidence({Seen(1500, kFault, 0)}, Worker()),
      ElementsAre("GPU 0000:3b:00.0 reported Xid 31 (GPU memory page fault, an access to an invalid address) "
                  "8.5 s before the failure, for process 1234 (python). Remedy: usually a bug of the "
                  "program: run it with "
                  "compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1. The driver: Ch 00000008, MMU Fault"));
}

TEST(XidEvidenceTest, ContainsTheDriversTextUnlessItOnlyRepeatsTheMeaning) {
  EXPECT_THAT(XidEvidence({Seen(9600,
                                "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 "
                                "(None) to 0x2 (Node Reboot Required)")},
                          Worker()),
              ElementsAre(HasSubstr("to 0x2 (Node Reboot Required)")));
  EXPECT_THAT(XidEvidence({Seen(9600, kBus)}, Worker()), ElementsAre(Not(HasSubstr("The driver"))));
}

TEST(XidEvidenceTest, AMessageConcernsTheWorkerThatItNames) {
  // Even if the worker does not seem to use this GPU, and if others can use it.
  EXPECT_THAT(XidEvidence({Seen(9600, kFault, 1)}, Worker(1, {})), SizeIs(1));
  EXPECT_THAT(XidEvidence({Seen(9600, kFault, 1)}, Worker(0)), IsEmpty());
}

TEST(XidEvidenceTest, OtherwiseItConcernsAllWorkersThatCanUseTheGpu) {
  EXPECT_THAT(XidEvidence({Seen(9600, kBus)}, Worker(0, {kGpu1})), IsEmpty());
  EXPECT_THAT(XidEvidence({Seen(9600, kBus)}, Worker(0, {})), IsEmpty());
  for (const int worker : {0, 1}) {
    EXPECT_THAT(
        XidEvidence({Seen(9600, kBus)}, Worker(worker, {kGpu0, kGpu1})),
        ElementsAre(HasSubstr("GPU 0000:3b:00.0, one of the 2 that this worker can use, reported Xid 79")));
  }
  EXPECT_THAT(XidEvidence({Seen(9600, kFault)}, Worker()),
              ElementsAre(HasSubstr("for process 1234 (python), which is not known to belong to a worker")));
}

TEST(XidEvidenceTest, PidsOfAnotherNamespaceAreNotShown) {
  SeenXid seen = Seen(9600, kFault);
  seen.has_our_pids = false;
  EXPECT_THAT(XidEvidence({seen}, Worker()),
              ElementsAre(AllOf(HasSubstr("for a process named python."), Not(HasSubstr("1234")))));
}

TEST(XidEvidenceTest, OnlyMessagesOfTheLifeOfTheWorkerCount) {
  EXPECT_THAT(XidEvidence({Seen(-1, kBus)}, Worker()), IsEmpty());
  EXPECT_THAT(XidEvidence({Seen(0, kBus)}, Worker()), ElementsAre(HasSubstr(" 10.0 s before the failure")));
  EXPECT_THAT(XidEvidence({Seen(10'000, kBus)}, Worker()),
              ElementsAre(HasSubstr(" 0 ms before the failure")));
  EXPECT_THAT(XidEvidence({Seen(10'300, kBus)}, Worker()),
              ElementsAre(HasSubstr(" 300 ms after the failure")));
  EXPECT_THAT(XidEvidence({Seen(11'001, kBus)}, Worker()), IsEmpty());
}

TEST(XidEvidenceTest, AConsequenceIsNotShownAsACause) {
  EXPECT_THAT(XidEvidence({Seen(9000, kFault, 0), Seen(9001, kEnded, 0)}, Worker()),
              ElementsAre(HasSubstr("Xid 31")));
  EXPECT_THAT(XidEvidence({Seen(9001, kEnded, 0)}, Worker()),
              ElementsAre(AllOf(HasSubstr("Xid 45 (the driver has ended the program's channels)"),
                                HasSubstr("usually a consequence of the end of the program"))));
  EXPECT_THAT(XidEvidence({Seen(9001, absl::StrCat(kEnded, " caused by previous Xid 149"), 0)}, Worker()),
              ElementsAre(HasSubstr("a consequence of Xid 149")));
  // An error that comes later than Xid 45 is shown, too.
  EXPECT_THAT(XidEvidence({Seen(9001, kEnded, 0), Seen(9002, kBus)}, Worker()),
              ElementsAre(HasSubstr("Xid 45"), HasSubstr("Xid 79")));
}

TEST(XidEvidenceTest, MessagesOfOneKindAreOneLine) {
  EXPECT_THAT(
      XidEvidence({Seen(9000, kFault, 0), Seen(9100, kBus), Seen(9200, kFault, 0), Seen(9300, kFault, 0)},
                  Worker()),
      ElementsAre(HasSubstr("3 times, first 1.0 s before the failure"), HasSubstr("Xid 79")));
}

TEST(XidEvidenceTest, ShowsAtMostFiveLines) {
  std::vector<SeenXid> seen;
  for (int code = 1000; code < 1020; ++code) {
    seen.push_back(Seen(code, absl::StrCat("NVRM: Xid (PCI:0000:3b:00): ", code, ", new in this driver")));
  }
  const std::vector<std::string> lines = XidEvidence(seen, Worker());
  ASSERT_THAT(lines, SizeIs(5));
  EXPECT_EQ(lines[0],
            "GPU 0000:3b:00.0 reported Xid 1000 9.0 s before the failure. The driver: new in this driver");
  EXPECT_EQ(lines[4], "the driver reported 16 more kinds of GPU errors: see dmesg");
}

TEST(XidEvidenceTest, ASwitchConcernsAllWorkersWithGpus) {
  const SeenXid seen =
      Seen(9000, "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 11001, Fatal, ingress invalid command");
  EXPECT_EQ(seen.xid.address, kSwitch);
  EXPECT_THAT(XidEvidence({seen}, Worker()),
              ElementsAre("NVSwitch 0000:c1:00.0 reported SXid 11001 1.0 s before the failure. Remedy: reset "
                          "the GPUs and the "
                          "switches, or reboot. The driver: Fatal, ingress invalid command"));
  EXPECT_THAT(XidEvidence({seen}, Worker(0, {})), IsEmpty());
}

TEST(MemoryEvidenceTest, ReportsWhatHasBecomeWorse) {
  EXPECT_THAT(MemoryEvidence(kGpu0, {.uncorrected = 3}, {.uncorrected = 3}), IsEmpty());
  EXPECT_THAT(MemoryEvidence(kGpu0, {.uncorrected = 3}, {.uncorrected = 4}),
              ElementsAre(HasSubstr(
                  "GPU 0000:3b:00.0 has counted 1 uncorrected ECC error since the workers started")));
  EXPECT_THAT(MemoryEvidence(kGpu0, {.uncorrected = 3}, {.uncorrected = 5}),
              ElementsAre(HasSubstr("2 uncorrected ECC errors")));
  EXPECT_THAT(MemoryEvidence(kGpu0, {.uncorrected = 3}, {.uncorrected = 0}), IsEmpty())
      << "the driver was loaded again";
  EXPECT_THAT(MemoryEvidence(kGpu0, {}, {.uncorrected = 7}), IsEmpty()) << "the number before is not known";
  EXPECT_THAT(MemoryEvidence(kGpu0, {}, {.remap_pending = true}), ElementsAre(HasSubstr("reset")));
  EXPECT_THAT(MemoryEvidence(kGpu0, {.remap_pending = true}, {.remap_pending = true}), IsEmpty());
  EXPECT_THAT(MemoryEvidence(kGpu0, {.remap_pending = true}, {.remap_pending = true, .remap_failed = true}),
              ElementsAre(HasSubstr("have the GPU replaced")));
}

}  // namespace
}  // namespace ddprun
