#include "examples/train/metrics.h"

#include <stdlib.h>

#include <string>
#include <string_view>
#include <vector>

#include "ddprun/status.h"
#include "examples/train/chart.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

StepMetrics Step(int64_t step, int restart = 0) {
  return {.step = step,
          .loss = 5.0 / static_cast<double>(step),
          .time = 1795248899.125,
          .world_size = 4,
          .restart = restart,
          .round = restart,
          .tokens_per_s = 1234.5};
}

class MetricsFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/metricsXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    path_ = name + "/metrics.jsonl";
  }
  void Append(const StepMetrics& metrics) {
    StatusOr<MetricsWriter> writer = MetricsWriter::Open(path_);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE(writer->Append(metrics).ok());
  }

  std::string path_;
};

TEST_F(MetricsFileTest, LinesRoundTripBitForBit) {
  Append(Step(3));
  Append(Step(7, 1));
  EXPECT_THAT(*ReadMetrics(path_), ElementsAre(Step(3), Step(7, 1)));
  EXPECT_THAT(*ReadFile(path_),
              HasSubstr(R"({"step":3,"loss":1.6666666666666667,"time":1795248899.125,"world_size":4,)"
                        R"("restart":0,"round":0,"tokens_per_s":1234.5})"
                        "\n"));
}

TEST_F(MetricsFileTest, SkipsATornLineAndKeepsTheOthers) {
  ASSERT_TRUE(WriteFile(path_, ToJson(Step(1)) + "\n" + R"({"step":2,"lo)").ok());
  Append(Step(2, 1));
  EXPECT_THAT(*ReadMetrics(path_), ElementsAre(Step(1), Step(2, 1)));
}

TEST_F(MetricsFileTest, RejectsIncompleteLines) {
  for (const char* line : {"", "x", "[]", "{}", R"({"step":1})", R"({"step":"1","loss":1,"time":1})"}) {
    EXPECT_FALSE(FromJson(line).ok()) << line;
  }
}

TEST_F(MetricsFileTest, ErrorsNameTheFile) {
  EXPECT_THAT(std::string(MetricsWriter::Open("/nowhere/m").status().message()),
              HasSubstr("--metrics: cannot open /nowhere/m: No such file"));
  EXPECT_TRUE(IsNotFound(ReadMetrics("/nowhere/m").status()));
}

int Count(const std::string& text, std::string_view part) {
  int count = 0;
  for (size_t at = text.find(std::string(part)); at != std::string::npos;
       at = text.find(std::string(part), at + 1)) {
    ++count;
  }
  return count;
}

TEST(ChartTest, DrawsALinePerRunAndMarksRestarts) {
  std::vector<StepMetrics> metrics;
  for (int64_t step = 1; step <= 8; ++step) metrics.push_back(Step(step));
  const std::string uninterrupted = DrawLossChart(metrics);
  EXPECT_EQ(Count(uninterrupted, "<polyline"), 1);
  EXPECT_THAT(uninterrupted, HasSubstr("loss 0.6250 after 8 steps<"));
  EXPECT_THAT(uninterrupted, Not(HasSubstr("restart")));

  for (int64_t step = 6; step <= 10; ++step) metrics.push_back(Step(step, 1));
  const std::string restarted = DrawLossChart(metrics);
  EXPECT_EQ(Count(restarted, "<polyline"), 2);
  EXPECT_THAT(restarted, HasSubstr("restart 1: 4 workers, 3 steps repeated"));
  EXPECT_THAT(restarted, HasSubstr("after 10 steps, 1 restart<"));
}

TEST(ChartTest, MarksANewRoundWithoutARestart) {
  std::vector<StepMetrics> metrics = {Step(1), Step(2)};
  metrics[1].round = 5;
  metrics[1].world_size = 1;
  EXPECT_THAT(DrawLossChart(metrics), HasSubstr("round 5: 1 worker<"));
}

TEST(ChartTest, DrawsAnyNumberOfSteps) {
  EXPECT_THAT(DrawLossChart({}), HasSubstr("no steps"));
  const std::string one = DrawLossChart(std::vector<StepMetrics>{Step(1)});
  EXPECT_THAT(one, Not(HasSubstr("nan")));
  EXPECT_THAT(one, Not(HasSubstr("inf")));
  std::vector<StepMetrics> many;
  for (int64_t step = 1; step <= 100'000; ++step) many.push_back(Step(step));
  EXPECT_LT(DrawLossChart(many).size(), 60'000);
}

}  // namespace
}  // namespace ddprun::train
