// Tests `train --trace` and the flags of the data-parallel step, with real processes.
#include <signal.h>

#include <boost/json.hpp>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/train/job.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Eq;
using testing::HasSubstr;
using testing::Not;

using Flags = std::vector<std::string>;

Flags operator+(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

struct Event {
  std::string name;
  int64_t rank = 0, step = 0;
  double begin = 0, end = 0;  // microseconds
};

// The events with durations. Fails the test if the file is not a trace.
std::vector<Event> ReadTrace(const std::string& path) {
  std::vector<Event> events;
  const boost::json::value file = boost::json::parse(ReadFile(path).value());
  for (const boost::json::value& value : file.at("traceEvents").as_array()) {
    if (value.at("ph") != "X") continue;
    const auto begin = value.at("ts").as_double();
    events.push_back({.name = std::string(value.at("name").as_string()),
                      .rank = value.at("pid").as_int64(),
                      .step = value.at("args").at("step").as_int64(),
                      .begin = begin,
                      .end = begin + value.at("dur").as_double()});
  }
  return events;
}

bool Overlap(const Event& a, const Event& b) { return a.begin < b.end && b.begin < a.end; }
bool Inside(const Event& a, const Event& b) { return a.begin >= b.begin - 1 && a.end <= b.end + 1; }

// Steps of a rank in which an event `a` and an event `b` satisfy `relation`: rank -> number.
using Relation = bool (*)(const Event&, const Event&);
std::map<int64_t, size_t> StepsWith(const std::vector<Event>& events, const std::string& a, Relation relation,
                                    const std::string& b) {
  std::map<int64_t, std::map<int64_t, bool>> found;
  for (const Event& x : events) {
    for (const Event& y : events) {
      if (x.name == a && y.name == b && x.rank == y.rank && x.step == y.step && relation(x, y)) {
        found[x.rank][x.step] = true;
      }
    }
  }
  std::map<int64_t, size_t> counts;
  for (const auto& [rank, steps] : found) counts[rank] = steps.size();
  return counts;
}

std::map<std::string, size_t> Counts(const std::vector<Event>& events, int64_t rank) {
  std::map<std::string, size_t> counts;
  for (const Event& event : events) {
    if (event.rank == rank) ++counts[event.name];
  }
  return counts;
}

const std::map<int64_t, size_t> kAllSteps = {{0, 6}, {1, 6}};

TEST(TrainTraceTest, BucketsOverlapBackwardUnlessNoOverlapIsGiven) {
  const std::string directory = MakeTestDirectory();
  const Flags flags = TinyModel() + Flags{"--steps=6", "--bucket-mb=0.004"};
  const std::string untraced = Train({}, flags);
  for (const int nodes : {1, 2}) {
    for (const bool overlap : {true, false}) {
      SCOPED_TRACE(testing::Message() << nodes << " nodes, overlap " << overlap);
      const std::string path = directory + "/trace.json";
      EXPECT_EQ(Train({.world_size = 2, .nodes = nodes},
                      flags + Flags{"--trace=" + path} + (overlap ? Flags{} : Flags{"--no-overlap"})),
                untraced);
      const std::vector<Event> events = ReadTrace(path);
      for (const int64_t rank : {0, 1}) {
        std::map<std::string, size_t> counts = Counts(events, rank);
        EXPECT_EQ(counts["forward"], 6);
        EXPECT_EQ(counts["backward"], 6);
        EXPECT_EQ(counts["finish"], 6);
        EXPECT_GE(counts["bucket"], 6 * 3);
      }
      EXPECT_EQ(StepsWith(events, "bucket", Inside, "bucket"), kAllSteps);
      EXPECT_EQ(StepsWith(events, "optimizer", Inside, "finish"), kAllSteps);
      EXPECT_EQ(StepsWith(events, "forward", Overlap, "backward"), (std::map<int64_t, size_t>{}));
      EXPECT_EQ(StepsWith(events, "bucket", Overlap, "backward"),
                overlap ? kAllSteps : (std::map<int64_t, size_t>{}));
      for (const Event& event : events) EXPECT_GE(event.begin, 0) << event.name;
    }
  }
}

TEST(TrainTraceTest, HasAllPassesAndSnapshots) {
  const std::string directory = MakeTestDirectory();
  const std::string path = directory + "/trace.json";
  Train({.world_size = 2}, TinyModel() + Flags{"--steps=6", "--accumulate=2", "--snapshot-every=3",
                                               "--snapshot-dir=" + directory + "/s", "--trace=" + path});
  const std::vector<Event> events = ReadTrace(path);
  for (const int64_t rank : {0, 1}) {
    std::map<std::string, size_t> counts = Counts(events, rank);
    EXPECT_EQ(counts["forward"], 12);
    EXPECT_EQ(counts["backward"], 12);
    EXPECT_EQ(counts["snapshot"], 2);
  }
}

TEST(TrainTraceTest, AKilledRoundLeavesTheTraceOfAnEarlierOne) {
  const std::string directory = MakeTestDirectory();
  const std::string path = directory + "/trace.json";
  ASSERT_TRUE(WriteFile(path, "earlier").ok());
  Job job({.world_size = 2}, TinyModel() + Flags{"--steps=1000000", "--trace=" + path});
  ASSERT_TRUE(job.worker(0).AwaitLine("step=5/"));
  job.worker(1).Signal(SIGKILL);
  EXPECT_EQ(job.Wait()[0], (ChildEnd{.code = 1}));
  EXPECT_EQ(ReadFile(path).value(), "earlier");
  EXPECT_EQ(ListDirectory(directory).value(), (std::vector<std::string>{"trace.json"}));
}

TEST(TrainTraceTest, AFileThatCannotBeWrittenIsAWarning) {
  const Flags flags = TinyModel() + Flags{"--steps=3"};
  Job job({.world_size = 2}, flags + Flags{"--trace=/nowhere/t.json"});
  EXPECT_EQ(job.Finish(), Train({}, flags));
  EXPECT_THAT(job.worker(0).err(), HasSubstr("train: --trace: cannot write /nowhere/t.json: No such file"));
  EXPECT_THAT(job.worker(1).err(), Not(HasSubstr("--trace")));
}

TEST(TrainStepFlagsTest, BucketsAndOverlapDoNotChangeResults) {
  const std::string result = Train({}, TinyModel() + Flags{"--steps=12"});
  for (const Flags& flags : std::vector<Flags>{{},
                                               {"--no-overlap"},
                                               {"--bucket-mb=0.000001"},
                                               {"--bucket-mb=0.01", "--no-overlap"},
                                               {"--bucket-mb=25"},
                                               {"--accumulate=2"},
                                               {"--accumulate=4", "--bucket-mb=0.01"}}) {
    for (const JobOptions& job :
         std::vector<JobOptions>{{}, {.world_size = 2}, {.world_size = 4, .nodes = 2}}) {
      EXPECT_EQ(Train(job, TinyModel() + Flags{"--steps=12"} + flags), result)
          << testing::PrintToString(flags) << " " << job.world_size;
    }
  }
}

TEST(TrainStepFlagsTest, ClippedResultsDoNotDependOnTheNumberOfWorkers) {
  const Flags flags = TinyModel() + Flags{"--steps=12", "--optimizer=sgd", "--lr=0.5"};
  const Flags clipped = flags + Flags{"--clip=0.25"};
  const std::string result = Train({}, clipped);
  EXPECT_NE(result, Train({}, flags));
  for (const JobOptions& job : std::vector<JobOptions>{{.world_size = 2}, {.world_size = 4, .nodes = 2}}) {
    EXPECT_EQ(Train(job, clipped), result);
    EXPECT_EQ(Train(job, clipped + Flags{"--bucket-mb=0.01", "--accumulate=2"}), result);
  }
}

// Half the bits of a gradient are rounded off, so that the results differ, but only slightly.
TEST(TrainStepFlagsTest, CompressionRoundsGradients) {
  const std::string directory = MakeTestDirectory();
  const auto losses = [&](const std::string& compression) {
    const std::string metrics = directory + "/" + compression;
    Train({.world_size = 2, .nodes = 2},
          TinyModel() + Flags{"--steps=12", "--metrics=" + metrics, "--compression=" + compression});
    return Losses(metrics);
  };
  const std::vector<double> exact = losses("none");
  ASSERT_EQ(exact.size(), 12);
  for (const std::string compression : {"bf16", "fp16"}) {
    const std::vector<double> rounded = losses(compression);
    EXPECT_THAT(rounded, testing::Pointwise(testing::DoubleNear(0.02), exact)) << compression;
    EXPECT_NE(rounded, exact) << compression;
  }
}

TEST(TrainStepFlagsTest, RanksWithDifferentFlagsNameTheFlag) {
  for (const std::string flag :
       {"--bucket-mb=1", "--no-overlap", "--clip=1", "--compression=bf16", "--trace=/nowhere/t"}) {
    Job job({.world_size = 2}, TinyModel() + Flags{"--steps=5"}, {{}, {flag}});
    EXPECT_THAT(job.Wait(), Each(ChildEnd{.code = 1})) << flag;
    EXPECT_THAT(job.worker(0).err(),
                HasSubstr("rank 1 differs from rank 0 in " + flag.substr(0, flag.find('=')) + ":"));
  }
}

// A rate so large that the loss is not finite after a few steps. All ranks report that, and no rank a peer.
TEST(TrainStepFlagsTest, AllRanksReportALossThatIsNotFinite) {
  for (const Flags& more : std::vector<Flags>{{}, {"--clip=1e30"}}) {
    Job job({.world_size = 2, .nodes = 2}, TinyModel() + Flags{"--steps=50", "--lr=1e30"} + more);
    EXPECT_THAT(job.Wait(), Each(ChildEnd{.code = 1}));
    for (const int rank : {0, 1}) {
      EXPECT_THAT(job.worker(rank).err(), AllOf(HasSubstr("try a smaller --lr than 1e+30"),
                                                Not(HasSubstr("the cause is elsewhere"))));
    }
  }
}

}  // namespace
}  // namespace ddprun
