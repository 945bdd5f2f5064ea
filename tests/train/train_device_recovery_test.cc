// Faults of `train --device=cuda` under ddprun, on the stand-in for CUDA, cuBLAS and NCCL.
#include <signal.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/train/gpu_job.h"
#include "tests/train/job.h"

namespace ddprun {
namespace {

#ifdef DDPRUN_HAVE_CUDA

using testing::HasSubstr;
using testing::Not;

// A worker is killed in mid-run. The next round resumes from the snapshot, and ends with the bits of an undisturbed run on the
// CPU.
TEST(TrainDeviceRecoveryTest, AfterACrashTheSnapshotContinuesWithTheSameBits) {
  const std::string expected = OnCpu(Tiny({"--steps=40"}));
  for (const std::string optimizer : {"adamw", "sgd"}) {
    SCOPED_TRACE(optimizer);
    const std::string directory = MakeTestDirectory();
    const Flags flags = Tiny({"--steps=40", "--device=cuda", "--snapshot-dir=" + directory,
                              "--snapshot-every=4", "--optimizer=" + optimizer});
    Child job(TrainWithDdprun(2, {"--max-restarts=1"}, flags), StandInForDdprun({{"DEVICES", "2"}}));
    ASSERT_TRUE(job.AwaitLine("event=train step=0 "));
    ASSERT_TRUE(job.AwaitLine("step=9/40 ")) << job.err();
    const pid_t worker = WorkerOf(directory, /*rank=*/1);
    ASSERT_GT(worker, 0);
    ASSERT_EQ(kill(worker, SIGKILL), 0);
    EXPECT_EQ(job.Wait(seconds(60)), (ChildEnd{.code = 0})) << job.err();
    EXPECT_THAT(job.out(), HasSubstr("event=resume step="));
    const size_t last = job.out().rfind("\nstep=40 ");
    ASSERT_NE(last, std::string::npos) << job.out();
    EXPECT_EQ(job.out().substr(last + 1),
              optimizer == "adamw" ? expected : OnCpu(Tiny({"--steps=40", "--optimizer=sgd"})));
  }
}

TEST(TrainDeviceRecoveryTest, AKilledRankEndsTheOthersAndIsNamed) {
  for (const int killed : {0, 1}) {
    Job job({.world_size = 2, .more = StandIn({{"DEVICES", "2"}})},
            Tiny({"--device=cuda", "--steps=100000"}));
    ASSERT_TRUE(job.worker(0).AwaitLine("step=3/"));
    job.worker(killed).Signal(SIGKILL);
    const std::vector<ChildEnd> ends = job.Wait();
    EXPECT_EQ(ends[1 - killed], (ChildEnd{.code = 1}));
    EXPECT_THAT(job.worker(1 - killed).err(),
                HasSubstr("rank " + std::to_string(killed) + " of round 0 is gone"));
  }
}

// The GPU of rank 1 is lost in mid-step. Its worker ends with the driver's error, which ddprun reports as the cause.
TEST(TrainDeviceRecoveryTest, ALostGpuEndsTheJob) {
  const std::string script = "[ $RANK = 0 ] || export DDPRUN_STAND_IN_LOST_AFTER=400; exec \"$0\" \"$@\"";
  Flags argv = {ProgramPath("launcher/ddprun"),
                "--standalone",
                "--nproc-per-node=2",
                "--no-python",
                "/bin/sh",
                "-c",
                script};
  for (const std::string& arg : TrainAlone(Tiny({"--device=cuda", "--steps=100000", "--log-every=100000"})))
    argv.push_back(arg);
  Child job(argv, StandInForDdprun({{"DEVICES", "2"}}));
  EXPECT_EQ(job.Wait(seconds(60)), (ChildEnd{.code = 1})) << job.out();
  EXPECT_THAT(job.err(), HasSubstr("the context of GPU 1 is lost until the process exits"));
}

// Each rank is killed once: the root of the broadcast, a joiner of the round before, and one that was neither. The others keep
// their memory on the GPU, and there is no snapshot.
TEST(TrainDeviceRecoveryTest, LostRanksAreReplacedInPlaceWithTheSameBits) {
  for (const std::string optimizer : {"adamw", "sgd"}) {
    SCOPED_TRACE(optimizer);
    const Flags tiny = Tiny({"--steps=60", "--global-batch=12", "--optimizer=" + optimizer});
    const std::string marker = "--metrics=" + MakeTestDirectory() + "/m";
    Flags flags = tiny;
    for (const std::string& flag : {std::string("--device=cuda"), std::string("--in-place"), marker})
      flags.push_back(flag);
    Child job(TrainWithDdprun(3, {"--max-restarts=3"}, flags), StandInForDdprun({{"DEVICES", "3"}}));
    int step = 0;
    for (const int victim : {1, 0, 2}) {
      const std::string next = "step=" + std::to_string(step += 12) + "/60 ";
      ASSERT_TRUE(job.AwaitLine(next)) << next << job.err();
      const pid_t lost = WorkerOf(marker, victim), kept = WorkerOf(marker, (victim + 1) % 3);
      ASSERT_GT(lost, 0);
      ASSERT_GT(kept, 0);
      ASSERT_EQ(kill(lost, SIGKILL), 0);
      ASSERT_TRUE(job.AwaitLine(" in_place=yes ")) << job.err();
      EXPECT_EQ(WorkerOf(marker, (victim + 1) % 3), kept);
    }
    EXPECT_EQ(job.Wait(seconds(60)), (ChildEnd{.code = 0})) << job.err();
    EXPECT_THAT(job.out(), Not(HasSubstr("event=resume")));
    const size_t last = job.out().rfind("\nstep=60 ");
    ASSERT_NE(last, std::string::npos) << job.out();
    EXPECT_EQ(job.out().substr(last + 1), OnCpu(tiny));
  }
}

#else

TEST(TrainDeviceRecoveryTest, WithoutAToolkitTheJobTrainsInPlaceOnTheCpu) {
  Child job(TrainWithDdprun(2, {}, Tiny({"--device=auto", "--in-place"})), StandInForDdprun());
  EXPECT_TRUE(job.AwaitLine("event=device device=cpu"));
  EXPECT_EQ(job.Wait(), (ChildEnd{.code = 0})) << job.err();
}

#endif

}  // namespace
}  // namespace ddprun
