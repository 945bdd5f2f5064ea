// `train --device` on the stand-in for CUDA, cuBLAS and NCCL, whose kernels and products are those of the CPU: a GPU computes the
// bits of the CPU. Streams have random delays, so that work in the wrong order computes others. Without a toolkit: `train` says so.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/train/job.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

using Flags = std::vector<std::string>;

// Those of `flags` replace those of a tiny model.
Flags Tiny(const Flags& flags) {
  Flags all = {"--layers=1",       "--heads=2", "--width=16",   "--context=16",
               "--global-batch=8", "--steps=6", "--log-every=1"};
  for (const std::string& flag : flags) {
    const std::string name = flag.substr(0, flag.find('=') + 1);
    if (!name.empty()) std::erase_if(all, [&](const std::string& f) { return f.starts_with(name); });
    all.push_back(flag);
  }
  return all;
}

// The environment of a process that finds the stand-in, with these settings of it.
Environment StandIn(const Environment& settings = {}) {
  std::string path;
  for (const char* library :
       {"examples/train/gpu/testing", "worker_sdk/testing/gpu/nccl", "worker_sdk/testing/gpu/cublas"})
    path += (path.empty() ? "" : ":") + ProgramPath(library);
  Environment environment = {{"LD_LIBRARY_PATH", path}, {"DDPRUN_STAND_IN_TREE_SUMS", "1"}};
  for (const auto& [name, value] : settings) environment.emplace_back("DDPRUN_STAND_IN_" + name, value);
  return environment;
}

Flags TrainAlone(const Flags& flags) {
  Flags argv = {ProgramPath("examples/train/train")};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

// The last line of a program that must succeed: "step=... loss=... sha256=...".
std::string LastLineOf(const Flags& argv, const Environment& environment) {
  Child child(argv, environment);
  EXPECT_EQ(child.Wait(seconds(100)).value_or(ChildEnd{}), (ChildEnd{.code = 0}))
      << testing::PrintToString(argv) << "\n"
      << child.err();
  const size_t last = child.out().rfind("\nstep=");
  return last == std::string::npos ? child.out() : child.out().substr(last + 1);
}

std::string OnCpu(Flags flags) {
  flags.push_back("--device=cpu");
  return LastLineOf(TrainAlone(flags), {});
}

#ifdef DDPRUN_HAVE_CUDA

Flags WithDdprun(int workers, const Flags& agent, const Flags& flags) {
  Flags argv = {ProgramPath("launcher/ddprun"), "--standalone",
                "--nproc-per-node=" + std::to_string(workers)};
  argv.insert(argv.end(), agent.begin(), agent.end());
  argv.push_back(ProgramPath("examples/train/train"));
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

Environment WithPath(Environment environment) {
  environment.emplace_back("PATH", "/usr/bin:/bin");
  environment.emplace_back("TMPDIR", testing::TempDir());
  return environment;
}

std::string OnGpu(Flags flags) {
  flags.push_back("--device=cuda");
  return LastLineOf(TrainAlone(flags), StandIn());
}

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
    EXPECT_EQ(LastLineOf(WithDdprun(workers, {}, on_gpu), WithPath(StandIn({{"DEVICES", "4"}}))), expected);
    EXPECT_EQ(Losses(metrics), losses);
  }
}

// NCCL's own order of sums is random on the stand-in.
TEST(TrainDeviceTest, WithSumsInAnyOrderTheLossesAreNearThoseOfTheCpu) {
  const std::string directory = MakeTestDirectory();
  OnCpu(Tiny({"--metrics=" + directory + "/cpu"}));
  const std::vector<double> expected = Losses(directory + "/cpu");
  Environment environment = WithPath(StandIn({{"DEVICES", "4"}}));
  std::erase_if(environment, [](const auto& v) { return v.first == "DDPRUN_STAND_IN_TREE_SUMS"; });
  LastLineOf(WithDdprun(4, {}, Tiny({"--device=cuda", "--metrics=" + directory + "/gpu"})), environment);
  const std::vector<double> losses = Losses(directory + "/gpu");
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-3) << "step " << i + 1;
}

// The worker with this rank of the job that has `flag` on its command line; 0 if there is none.
pid_t WorkerOf(const std::string& flag, int rank) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const StatusOr<std::string> argv = ReadFile(entry.path() / "cmdline");
    const StatusOr<std::string> environment = ReadFile(entry.path() / "environ");
    if (!argv.ok() || !environment.ok() || !argv->starts_with(ProgramPath("examples/train/train"))) continue;
    const std::string variable = std::string(1, '\0') + "RANK=" + std::to_string(rank) + '\0';
    if (argv->find(flag) != std::string::npos && environment->find(variable) != std::string::npos)
      return std::stoi(name);
  }
  return 0;
}

// A worker is killed in mid-run. The next round resumes from the snapshot, and ends with the bits of an undisturbed run on the
// CPU.
TEST(TrainDeviceTest, AfterACrashTheSnapshotContinuesWithTheSameBits) {
  const std::string expected = OnCpu(Tiny({"--steps=40"}));
  for (const std::string optimizer : {"adamw", "sgd"}) {
    SCOPED_TRACE(optimizer);
    const std::string directory = MakeTestDirectory();
    const Flags flags = Tiny({"--steps=40", "--device=cuda", "--snapshot-dir=" + directory,
                              "--snapshot-every=4", "--optimizer=" + optimizer});
    Child job(WithDdprun(2, {"--max-restarts=1"}, flags), WithPath(StandIn({{"DEVICES", "2"}})));
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
    Child job(WithDdprun(3, {}, Tiny({})), WithPath(StandIn({{"DEVICES", devices}})));
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

TEST(TrainDeviceTest, AKilledRankEndsTheOthersAndIsNamed) {
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
TEST(TrainDeviceTest, ALostGpuEndsTheJob) {
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
  Child job(argv, WithPath(StandIn({{"DEVICES", "2"}})));
  EXPECT_EQ(job.Wait(seconds(60)), (ChildEnd{.code = 1})) << job.out();
  EXPECT_THAT(job.err(), HasSubstr("the context of GPU 1 is lost until the process exits"));
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
