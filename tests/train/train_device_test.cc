// `train --device` on the stand-in for CUDA, cuBLAS and NCCL, whose kernels and products are those of the CPU: a GPU computes the
// bits of the CPU. Streams have random delays, so that work in the wrong order computes others. Without a toolkit: `train` says so.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/train/gpu_job.h"
#include "tests/train/job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

#ifdef DDPRUN_HAVE_CUDA

TEST(TrainDeviceTest, AGpuComputesTheBitsOfTheCpu) {
  const std::vector<Flags> kCases = {
      {},
      {"--layers=3", "--global-batch=5"},
      {"--global-batch=7", "--accumulate=3"},  // the last pass is smaller
      {"--accumulate=8"},
      {"--global-batch=1", "--heads=1"},
      {"--optimizer=sgd", "--lr=0.1"},
      {"--clip=0.5"},
      {"--compression=bf16"},
      {"--bucket-mb=0.004"},
      {"--bucket-mb=0.004", "--no-overlap"},
      {"--width=6", "--heads=3", "--context=5"},
      // Chains of products that the CPU cuts, and chains that it does not.
      {"--width=300", "--heads=1", "--context=270", "--global-batch=3", "--steps=2"},
  };
  for (const Flags& flags : kCases) {
    const Flags all = Tiny(flags);
    SCOPED_TRACE(testing::PrintToString(all));
    const std::string expected = OnCpu(all);
    EXPECT_THAT(expected, MatchesRegex("step=[26] loss=[0-9.]+ sha256=[0-9a-f]{64}\n"));
    EXPECT_EQ(OnGpu(all), expected);
  }
}

TEST(TrainDeviceTest, AllLossesAreThoseOfTheCpuInWorldsOf124) {
  const std::string directory = MakeTestDirectory();
  const Flags flags = Tiny({"--bucket-mb=0.004", "--metrics=" + directory + "/cpu"});
  const std::string expected = OnCpu(flags);
  const std::vector<double> losses = Losses(directory + "/cpu");
  ASSERT_EQ(losses.size(), 6);
  for (const int workers : {1, 2, 4}) {
    SCOPED_TRACE(workers);
    const std::string metrics = directory + "/" + std::to_string(workers);
    const Flags on_gpu = Tiny({"--bucket-mb=0.004", "--device=cuda", "--metrics=" + metrics});
    EXPECT_EQ(LastLineOf(TrainWithDdprun(workers, {}, on_gpu), StandInForDdprun({{"DEVICES", "4"}})),
              expected);
    EXPECT_EQ(Losses(metrics), losses);
  }
}

// NCCL's own order of sums is random on the stand-in.
TEST(TrainDeviceTest, WithSumsInAnyOrderTheLossesAreNearThoseOfTheCpu) {
  const std::string directory = MakeTestDirectory();
  OnCpu(Tiny({"--metrics=" + directory + "/cpu"}));
  const std::vector<double> expected = Losses(directory + "/cpu");
  Environment environment = StandInForDdprun({{"DEVICES", "4"}});
  std::erase_if(environment, [](const auto& v) { return v.first == "DDPRUN_STAND_IN_TREE_SUMS"; });
  LastLineOf(TrainWithDdprun(4, {}, Tiny({"--device=cuda", "--metrics=" + directory + "/gpu"})), environment);
  const std::vector<double> losses = Losses(directory + "/gpu");
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-3) << "step " << i + 1;
}

TEST(TrainDeviceTest, ASnapshotOfOneDeviceContinuesOnTheOther) {
  const std::string expected = OnCpu(Tiny({"--steps=12"}));
  for (const bool first_on_gpu : {true, false}) {
    const std::string snapshots = "--snapshot-dir=" + MakeTestDirectory();
    const Flags first = Tiny({"--steps=6", snapshots}), second = Tiny({"--steps=12", snapshots});
    first_on_gpu ? OnGpu(first) : OnCpu(first);
    EXPECT_EQ(first_on_gpu ? OnCpu(second) : OnGpu(second), expected);
  }
}

TEST(TrainDeviceTest, AutoTakesTheGpuAndSaysSo) {
  Child child(TrainAlone(Tiny({})), StandIn());
  EXPECT_TRUE(child.AwaitLine("event=device device=cuda gpu=\"Stand-in 0 (GPU 0 of 1)\""));
  EXPECT_EQ(child.Wait(), (ChildEnd{.code = 0})) << child.err();
}

TEST(TrainDeviceTest, AutoTakesTheCpuIfARankHasNoGpuAndSaysWhy) {
  const struct {
    std::string devices, reason;
  } kCases[] = {
      {"0", "rank 0 has no GPU: cuInit: CUDA_ERROR_NO_DEVICE"},
      {"1", "ranks 0 and 1 have the same GPU, GPU-"},
      {"2", "rank 2 has no GPU: there is no GPU 2: this process sees 2"},
  };
  for (const auto& [devices, reason] : kCases) {
    Child job(TrainWithDdprun(3, {}, Tiny({})), StandInForDdprun({{"DEVICES", devices}}));
    EXPECT_TRUE(job.AwaitLine("event=device device=cpu reason=\"" + reason)) << devices;
    EXPECT_EQ(job.Wait(), (ChildEnd{.code = 0})) << job.err();
  }
}

TEST(TrainDeviceTest, CudaWithoutAGpuIsAnErrorOnAllRanks) {
  Job job({.world_size = 3, .more = StandIn({{"DEVICES", "2"}})}, Tiny({"--device=cuda"}));
  for (const ChildEnd& end : job.Wait()) EXPECT_EQ(end, (ChildEnd{.code = 1}));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(job.worker(rank).err(),
                HasSubstr("train: --device=cuda: rank 2 has no GPU: there is no GPU 2: this process sees 2"))
        << rank;
  }
}

TEST(TrainDeviceTest, CpuDoesNotOpenCuda) {
  // A driver that ends the process when it is opened: with --device=auto it does.
  const Environment trap = {{"LD_LIBRARY_PATH", ProgramPath("tests/train/trap")}};
  Child automatic(TrainAlone(Tiny({})), trap);
  EXPECT_EQ(automatic.Wait(), (ChildEnd{.code = 77}));
  Child cpu(TrainAlone(Tiny({"--device=cpu"})), trap);
  EXPECT_TRUE(cpu.AwaitLine("event=device device=cpu"));
  EXPECT_EQ(cpu.Wait(), (ChildEnd{.code = 0})) << cpu.err();
}

TEST(TrainDeviceTest, ErrorsOfTheGpuEndTheWorkerAndNameTheCause) {
  const struct {
    Environment settings;
    std::string message;
  } kCases[] = {
      {{{"CUBLAS_VERSION", "99"}}, "--device=cuda: rank 0 has no GPU: libcublas.so."},
      {{{"DRIVER_VERSION", "11080"}}, "the NVIDIA driver is of CUDA 11.8; this library needs 12.0 or newer"},
      // The first allocation is the workspace of cuBLAS.
      {{{"NO_MEMORY_AT", "1"}},
       "--device=cuda: the workspace of cuBLAS: cuMemAlloc of 33554432 bytes on GPU 0: "},
      {{{"NO_MEMORY_AT", "9"}},
       "--device=cuda: the memory of the model: give more workers, a larger --accumulate or"},
      {{{"LOST_AFTER", "150"}}, "; the context of GPU 0 is lost until the process exits"},
  };
  for (const auto& [settings, message] : kCases) {
    Child child(TrainAlone(Tiny({"--device=cuda"})), StandIn(settings));
    EXPECT_EQ(child.Wait(), (ChildEnd{.code = 1}));
    EXPECT_THAT(child.err(), HasSubstr(message));
  }
}

#else

TEST(TrainDeviceTest, WithoutAToolkitTheProgramSaysSo) {
  Child child(TrainAlone(Tiny({"--device=cuda"})), StandIn());
  EXPECT_EQ(child.Wait(), (ChildEnd{.code = 1}));
  EXPECT_THAT(child.err(), HasSubstr("train: --device=cuda: rank 0 has no GPU: "));
  EXPECT_THAT(child.err(), HasSubstr("was built without a CUDA toolkit"));
  Child automatic(TrainAlone(Tiny({})), StandIn());
  EXPECT_TRUE(automatic.AwaitLine("event=device device=cpu reason=\"rank 0 has no GPU: "));
  EXPECT_EQ(automatic.Wait(), (ChildEnd{.code = 0})) << automatic.err();
  EXPECT_THAT(OnCpu(Tiny({})), MatchesRegex("step=6 loss=[0-9.]+ sha256=[0-9a-f]{64}\n"));
}

#endif

}  // namespace
}  // namespace ddprun
