#include "examples/train/sample_log.h"

#include <stdlib.h>

#include <string>

#include "ddprun/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun::train {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

SampleUse Use(int64_t round, int64_t step, int rank) {
  return {.round = round,
          .step = step,
          .rank = rank,
          .world_size = 3,
          .epoch = 1,
          .position = 40,
          .samples = {7, 0, 7'000'000'000}};
}

TEST(SampleLogTest, ReadsLinesOfAllRanksAndRounds) {
  std::string directory = testing::TempDir() + "/samplesXXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  directory += "/made";
  for (const SampleUse& use : {Use(1, 5, 0), Use(1, 6, 0), Use(1, 5, 2), Use(2, 6, 0)}) {
    StatusOr<SampleLog> log = SampleLog::Open(directory, use.round, use.rank);
    ASSERT_TRUE(log.ok()) << log.status();
    ASSERT_TRUE(log->Append(use).ok());
  }
  EXPECT_THAT(
      ListDirectory(directory).value(),
      UnorderedElementsAre("samples-r1-rank0.jsonl", "samples-r1-rank2.jsonl", "samples-r2-rank0.jsonl"));
  ASSERT_TRUE(WriteFile(directory + "/samples-r9-rank0.jsonl", R"({"round":9,"step":4,"ra)").ok());
  EXPECT_THAT(ReadSampleLogs(directory).value(),
              UnorderedElementsAre(Use(1, 5, 0), Use(1, 6, 0), Use(1, 5, 2), Use(2, 6, 0)));
}

TEST(SampleLogTest, LinesAreJson) {
  EXPECT_EQ(
      ToJson(Use(2, 8, 1)),
      R"({"round":2,"step":8,"rank":1,"world_size":3,"epoch":1,"position":40,"samples":[7,0,7000000000]})");
  for (const char* line :
       {"", "{}", "[1]", R"({"round":2,"step":8,"rank":1,"world_size":3,"epoch":1,"position":40})",
        R"({"round":2,"step":"8","rank":1,"world_size":3,"epoch":1,"position":40,"samples":[]})",
        R"({"round":2,"step":8,"rank":1,"world_size":3,"epoch":1,"position":4,"samples":["x"]})"}) {
    EXPECT_FALSE(SampleUseFromJson(line).ok()) << line;
  }
}

TEST(SampleLogTest, ErrorsNameTheFile) {
  EXPECT_THAT(std::string(SampleLog::Open("/dev/null/x", 0, 0).status().message()),
              HasSubstr("/dev/null/x: Not a directory"));
}

}  // namespace
}  // namespace ddprun::train
