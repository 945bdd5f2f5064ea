#include "rendezvous/coordinator/recording.h"

#include <vector>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

constexpr TimePoint kStart{seconds(1000)};

std::vector<proto::RecordedStep> StepsOf(const std::function<void(StepRecorder&)>& use) {
  std::vector<proto::RecordedStep> steps;
  StepRecorder recorder([&](const proto::RecordedStep& step) { steps.push_back(step); },
                        /*registered=*/true);
  use(recorder);
  return steps;
}

uint32_t OutcomeOf(const std::function<void(StepRecorder&)>& outcomes) {
  return StepsOf([&](StepRecorder& recorder) {
           outcomes(recorder);
           recorder.End(kStart);
         })
      .at(0)
      .outcome_crc32();
}

TEST(StepRecorderTest, TimesAreRelativeToTheFirstStep) {
  const auto steps = StepsOf([](StepRecorder& recorder) {
    recorder.event().mutable_tick();
    recorder.End(kStart);
    recorder.event().mutable_stop()->set_run_id("j");
    recorder.End(kStart + milliseconds(1500));
  });
  ASSERT_EQ(steps.size(), 2);
  EXPECT_EQ(steps[0].at_ns(), 0);
  EXPECT_TRUE(steps[0].has_tick());
  EXPECT_TRUE(steps[0].registered());
  EXPECT_FALSE(steps[1].registered());
  EXPECT_EQ(steps[1].at_ns(), 1'500'000'000);
  EXPECT_EQ(steps[1].stop().run_id(), "j");
}

TEST(StepRecorderTest, TheOutcomeDependsOnKindPeerContentAndOrder) {
  const auto base = OutcomeOf([](StepRecorder& r) { r.Outcome("send", 1, "a"), r.Outcome("send", 1, "b"); });
  EXPECT_EQ(base, OutcomeOf([](StepRecorder& r) { r.Outcome("send", 1, "a"), r.Outcome("send", 1, "b"); }));
  EXPECT_NE(base, OutcomeOf([](StepRecorder& r) { r.Outcome("send", 1, "b"), r.Outcome("send", 1, "a"); }));
  EXPECT_NE(base, OutcomeOf([](StepRecorder& r) { r.Outcome("send", 2, "a"), r.Outcome("send", 1, "b"); }));
  EXPECT_NE(base, OutcomeOf([](StepRecorder& r) { r.Outcome("seen", 1, "a"), r.Outcome("send", 1, "b"); }));
  EXPECT_NE(base, OutcomeOf([](StepRecorder& r) { r.Outcome("send", 1, "a"); }));
}

TEST(StepRecorderTest, TheOutcomeIsResetAfterEachStep) {
  const auto steps = StepsOf([](StepRecorder& recorder) {
    for (int i = 0; i < 2; ++i) {
      recorder.Outcome("send", 1, "a");
      recorder.End(kStart);
    }
  });
  EXPECT_EQ(steps.at(0).outcome_crc32(), steps.at(1).outcome_crc32());
}

TEST(EncodeRecordingTest, DropsTheFirstStepBeyondTheLimitAndAllLaterSteps) {
  int64_t bytes = 0;
  int full = 0;
  const StepSink sink = EncodeRecording(
      [&](const std::string& more) { bytes += static_cast<int64_t>(more.size()); }, [&] { ++full; }, 1000);
  proto::RecordedStep step;
  step.mutable_stop()->set_reason(std::string(100, 'x'));
  for (int i = 0; i < 100; ++i) sink(step);
  EXPECT_EQ(full, 1);
  EXPECT_LE(bytes, 1000);
  EXPECT_GT(bytes, 800);
}

}  // namespace
}  // namespace ddprun
