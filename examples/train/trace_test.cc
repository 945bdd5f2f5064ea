#include "examples/train/trace.h"

#include <array>
#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ddprun/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_sdk/comm/host/host_communicator.h"
#include "worker_sdk/comm/testing/rank_threads.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun::train {
namespace {

using std::chrono::microseconds;
using testing::ElementsAre;
using testing::HasSubstr;

TimePoint At(int64_t micros) { return TimePoint(microseconds(micros)); }

std::vector<int64_t> Steps(const TraceLog& log) {
  std::vector<int64_t> steps;
  for (const TraceEvent& event : log.Events()) steps.push_back(event.step);
  return steps;
}

TEST(TraceLogTest, ANewEventReplacesTheOldestOne) {
  TraceLog log(3);
  for (int64_t step = 1; step <= 3; ++step) log.Add(TraceKind::kForward, step, At(step), At(step + 1));
  EXPECT_THAT(Steps(log), ElementsAre(1, 2, 3));
  for (int64_t step = 4; step <= 8; ++step) log.Add(TraceKind::kForward, step, At(step), At(step + 1));
  EXPECT_THAT(Steps(log), ElementsAre(6, 7, 8));
}

// The second bucket waits for the first one; the third one does not wait.
TEST(TraceLogTest, ABucketBeginsAfterTheOneBefore) {
  const auto bucket = [](int64_t started, int64_t reduced, int64_t bytes) {
    return DataParallel::BucketTiming{
        .parameters = {}, .num_bytes = bytes, .started = At(started), .reduced = At(reduced)};
  };
  TraceLog log;
  log.AddBuckets(9, {bucket(10, 30, 7), bucket(15, 40, 8), bucket(50, 60, 9)});
  std::vector<std::vector<int64_t>> events;
  for (const TraceEvent& e : log.Events()) {
    EXPECT_EQ(e.kind, TraceKind::kBucket);
    events.push_back({e.step, e.begin_ns / 1000, e.end_ns / 1000, e.num_bytes});
  }
  EXPECT_THAT(events,
              ElementsAre(ElementsAre(9, 10, 30, 7), ElementsAre(9, 30, 40, 8), ElementsAre(9, 50, 60, 9)));
}

TEST(TracedOptimizerTest, UpdatesLikeTheOptimizerAndRecordsWhen) {
  std::vector<float> values[2] = {{1, 2, 3}, {1, 2, 3}};
  const std::vector<float> gradient = {4, 5, 6};
  std::vector<std::unique_ptr<Optimizer>> optimizers;
  for (std::vector<float>& value : values) {
    optimizers.push_back(
        MakeSgd({{.name = "w", .shape = {3}, .value = View(value), .gradient = {}}}).value());
  }
  TraceLog log;
  TracedOptimizer traced(*optimizers[0], log);
  const TimePoint before = std::chrono::steady_clock::now();
  traced.Update(0, View(gradient), {.step = 3});
  optimizers[1]->Update(0, View(gradient), {.step = 3});
  EXPECT_EQ(values[0], values[1]);
  EXPECT_NE(values[0][0], 1);
  EXPECT_THAT(Steps(log), ElementsAre()) << "the next update may belong to the same event";
  traced.EndStep();
  traced.EndStep();
  ASSERT_THAT(Steps(log), ElementsAre(3));
  const TraceEvent event = log.Events()[0];
  EXPECT_EQ(event.kind, TraceKind::kOptimizer);
  EXPECT_GE(event.begin_ns, before.time_since_epoch().count());
  EXPECT_GE(event.end_ns, event.begin_ns);
}

class WriteTraceTest : public testing::Test {
 protected:
  Status Write(const std::string& path) {
    TraceLog log;
    log.Add(TraceKind::kBackward, 7, At(1500), At(1700));
    log.Add(TraceKind::kBucket, 7, At(1600), At(1602), 4096);
    return WriteTrace(comm_, log, /*node=*/5, At(1000), path, TimePoint::max());
  }

  Communicator comm_ = CreateHostCommunicator({}, nullptr).value();
};

TEST_F(WriteTraceTest, TimesCountFromTheStartOfTheTrace) {
  const std::string path = testing::TempDir() + "/trace.json";
  ASSERT_EQ(WriteFile(path, "old"), OkStatus());
  ASSERT_EQ(Write(path), OkStatus());
  const auto trace = boost::json::parse(ReadFile(path).value());
  EXPECT_EQ(trace.at("traceEvents"), boost::json::parse(R"([
    {"name":"process_name","ph":"M","pid":0,"tid":0,"args":{"name":"rank 0, node 5"}},
    {"name":"thread_name","ph":"M","pid":0,"tid":0,"args":{"name":"computation"}},
    {"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"buckets"}},
    {"name":"backward","ph":"X","pid":0,"tid":0,"ts":500.0,"dur":200.0,"args":{"step":7}},
    {"name":"bucket","ph":"X","pid":0,"tid":1,"ts":600.0,"dur":2.0,"args":{"step":7,"bytes":4096}}])"));
}

TEST_F(WriteTraceTest, ErrorNamesTheFile) {
  EXPECT_THAT(std::string(Write("/nowhere/t.json").message()),
              HasSubstr("/nowhere/t.json: No such file or directory"));
  // The directory in the way cannot be replaced, and no other file is left.
  const std::string directory = testing::TempDir() + "/in_the_way";
  std::filesystem::create_directories(directory + "/x");
  EXPECT_THAT(std::string(Write(directory).message()), HasSubstr(directory));
  EXPECT_FALSE(std::filesystem::exists(directory + ".tmp"));
}

// The temporary file is a device that is always full.
TEST_F(WriteTraceTest, AFullDiskIsTheError) {
  for (const int num_events : {1, 5000}) {
    const std::string path = testing::TempDir() + "/full.json";
    std::filesystem::create_symlink("/dev/full", path + ".tmp");
    TraceLog log;
    for (int step = 1; step <= num_events; ++step) log.Add(TraceKind::kForward, step, At(step), At(step + 1));
    const Status status = WriteTrace(comm_, log, /*node=*/0, At(1), path, TimePoint::max());
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(status.message(), "cannot write " + path + ": No space left on device");
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(path + ".tmp")));
  }
}

// Rank 1 fails between the number of its events and the events.
TEST(WriteTraceRanksTest, ARankThatFailsLeavesTheFileUnchanged) {
  const std::string path = testing::TempDir() + "/unchanged.json";
  ASSERT_EQ(WriteFile(path, "old"), OkStatus());
  WithRanks(2, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      EXPECT_FALSE(WriteTrace(comm, TraceLog(), /*node=*/0, At(1000), path, TimePoint::max()).ok());
      return;
    }
    std::array<int64_t, 3> head = {/*node=*/0, /*started_ns=*/0, /*num_events=*/1};
    std::array<int64_t, 6> heads = {};
    EXPECT_EQ(comm.AllGather(View(head), View(heads)).Wait(), OkStatus());
    comm.Abort("a test");
  });
  EXPECT_EQ(ReadFile(path).value(), "old");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

}  // namespace
}  // namespace ddprun::train
