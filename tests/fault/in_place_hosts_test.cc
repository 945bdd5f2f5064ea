// In-place recovery after the loss of a host: `train --in-place` on simulated hosts. The workers of the other hosts keep their
// processes and their memory. Nothing replaces the host.
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "examples/train/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"
#include "tests/fault/testing/job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using train::StepMetrics;

const ProcessEnd kSuccess{.code = 0};
constexpr int kSteps = 300;
// Powers of two for one worker and for two, so that the bits do not depend on the number of workers.
constexpr int kBatch = 16;

// A model whose steps take some milliseconds, so that the fault falls into a step.
Args Model() {
  return {TrainPath(),
          "--layers=2",
          "--heads=2",
          "--width=48",
          "--context=48",
          "--log-every=100000",
          "--cpu=baseline",
          "--steps=" + std::to_string(kSteps),
          "--global-batch=" + std::to_string(kBatch)};
}

// The last line that rank 0 prints: the step, the loss and the hash of all parameters.
std::string Result(const std::string& out) {
  const size_t at = out.rfind("step=");
  return at == std::string::npos ? out : out.substr(at, out.find('\n', at) - at);
}

class InPlaceHostsTest : public HostFaultTest {
 protected:
  std::vector<StepMetrics> Metrics() const {
    StatusOr<std::vector<StepMetrics>> all = train::ReadMetrics(metrics_);
    return all.ok() ? *std::move(all) : std::vector<StepMetrics>();
  }
  // Waits until a world of this size has done some steps.
  void AwaitSteps(HostJob& job, int world_size, int count) {
    const TimePoint deadline = std::chrono::steady_clock::now() + kPatience;
    const auto done = [&] {
      return std::ranges::count_if(Metrics(),
                                   [&](const StepMetrics& m) { return m.world_size == world_size; }) >= count;
    };
    while (!done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << world_size << "\n" << job.agent(0).err();
      job.agent(0).AwaitErr("a line that no program prints", 1, milliseconds(2));
    }
  }
  static std::map<int, std::vector<pid_t>> Workers(HostJob& job, int hosts) {
    std::map<int, std::vector<pid_t>> workers;
    for (int h = 0; h < hosts; ++h) workers[h] = job.hosts().Find(h, "train");
    return workers;
  }

  // The last of `num` hosts is lost.
  void LoseTheLastOf(int num, const std::string& reason, const std::function<void(Hosts&)>& fault) {
    HostJob job(num, {"--nnodes=" + std::to_string(num - 1) + ":" + std::to_string(num)},
                Model() + Args{"--in-place", "--metrics=" + metrics_});
    for (int h = 0; h < num; ++h) job.Start(h);
    AwaitSteps(job, num, 5);
    const std::map<int, std::vector<pid_t>> before = Workers(job, num - 1);
    for (const auto& [host, workers] : before) ASSERT_THAT(workers, SizeIs(1)) << host;
    FaultNow();
    fault(job.hosts());
    // The round may have ended before, because a worker has found that its peer is gone.
    EXPECT_THAT(job.AwaitLogged(0, reason), HasSubstr("node node" + std::to_string(num - 1)));
    Detected(job.agent(0).found_at());
    AwaitSteps(job, num - 1, 1);
    Recovered(std::chrono::steady_clock::now());
    EXPECT_EQ(Workers(job, num - 1), before) << "survivors keep their processes";
    for (int h = 0; h + 1 < num; ++h) job.ExpectEnd(h, kSuccess);
    EXPECT_THAT(job.agent(0).out(), Not(HasSubstr("event=resume"))) << "no snapshot is read";
    const std::vector<StepMetrics> all = Metrics();
    for (size_t i = 1; i < all.size(); ++i) EXPECT_LT(all[i - 1].step, all[i].step) << "no step is repeated";
    EXPECT_EQ(all.back().step, kSteps);
    result_ = Result(job.agent(0).out());
  }
  // The result of a run without a fault.
  static std::string Undisturbed() {
    const auto agent = StartAgent({"--standalone", "--no-python", "--nproc-per-node=1"}, Model());
    EXPECT_EQ(agent->Wait(seconds(60)), kSuccess) << agent->err();
    return Result(agent->out());
  }

  const std::string metrics_ = MakeTestDirectory() + "/metrics";
  std::string result_;
};

TEST_F(InPlaceHostsTest, OneOfTwoHostsLosesItsPower) {
  LoseTheLastOf(2, "its lease expired", [](Hosts& hosts) { hosts.PowerOff(1); });
  EXPECT_EQ(result_, Undisturbed());
}

TEST_F(InPlaceHostsTest, OneOfThreeHostsIsReset) {
  LoseTheLastOf(3, "its connection broke", [](Hosts& hosts) { hosts.Reset(2); });
}

// The lost host's own workers end when its lease has expired, so that no step is committed on both sides.
TEST_F(InPlaceHostsTest, OneOfThreeHostsLosesItsCable) {
  LoseTheLastOf(3, "its lease expired", [](Hosts& hosts) { hosts.Cut(2); });
}

}  // namespace
}  // namespace ddprun
