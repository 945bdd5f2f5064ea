#include "proto/evidence_codec.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

WorkerEvidence Example(int local_rank) {
  WorkerEvidence worker{.local_rank = LocalRank(local_rank),
                        .pid = 4711,
                        .state = WorkerEvidence::State::kBlocked,
                        .idle = seconds(12),
                        .step = 57,
                        .phase = "training",
                        .gpu_busy = 97,
                        .place = "load_batch (data.py:41)",
                        .stack = "load_batch\ntrain\nmain"};
  worker.operation = WorkerEvidence::Operation{.kind = "all-reduce", .number = 8812, .in_flight = true};
  return worker;
}

std::vector<WorkerEvidence> RoundTrip(const std::vector<WorkerEvidence>& workers, size_t max_bytes) {
  proto::Evidence message;
  EncodeWorkers(workers, {}, max_bytes, message);
  EXPECT_LE(message.ByteSizeLong(), max_bytes);
  return DecodeWorkers(message);
}

TEST(EvidenceCodecTest, AllFieldsArrive) {
  WorkerEvidence empty;
  EXPECT_THAT(RoundTrip({Example(0), empty, Example(3)}, 4096),
              testing::ElementsAre(Example(0), empty, Example(3)));
}

TEST(EvidenceCodecTest, EveryState) {
  using State = WorkerEvidence::State;
  for (const State state : {State::kUnknown, State::kRunning, State::kSleeping, State::kStopped,
                            State::kTraced, State::kBlocked, State::kEnded}) {
    EXPECT_EQ(RoundTrip({{.state = state}}, 1000).at(0).state, state);
  }
}

TEST(EvidenceCodecTest, WhatDoesNotFitIsLeftOut) {
  std::vector<WorkerEvidence> workers;
  for (int i = 0; i < 64; ++i) {
    workers.push_back(Example(i));
    workers.back().stack = std::string(5'000'000, 'x');
  }
  const auto large = RoundTrip(workers, size_t{64} << 10);
  ASSERT_EQ(large.size(), 64);
  EXPECT_GT(large[0].stack.size(), 500);
  EXPECT_GT(large[63].stack.size(), 500);
  const auto medium = RoundTrip(workers, 6000);
  ASSERT_EQ(medium.size(), 64);
  EXPECT_EQ(medium[0].place, workers[0].place);
  EXPECT_EQ(medium[0].stack, "");
  EXPECT_THAT(RoundTrip(workers, 512), testing::SizeIs(testing::AllOf(testing::Gt(5), testing::Lt(64))));
  EXPECT_THAT(RoundTrip(workers, 0), testing::IsEmpty());
}

TEST(EvidenceCodecTest, WhatIsMissingDisplacesNoWorker) {
  const std::vector<WorkerEvidence> workers(8, Example(0));
  const std::vector<std::string> missing(3, std::string(150, 'x'));
  proto::Evidence message;
  EncodeWorkers(workers, missing, 512, message);
  EXPECT_LE(message.ByteSizeLong(), 512);
  EXPECT_EQ(message.workers_size(), 8);
  EXPECT_LT(message.missing_size(), 3);
  proto::Evidence large;
  EncodeWorkers(workers, missing, 4096, large);
  EXPECT_EQ(large.missing_size(), 3);
}

TEST(EvidenceCodecTest, StrangeValuesAreReplaced) {
  proto::Evidence message;
  proto::WorkerEvidence& in = *message.add_workers();
  in.set_local_rank(-5);
  in.set_state(static_cast<proto::WorkerState>(99));
  in.set_idle_ms(-1);
  in.set_phase("a\nb");
  in.set_place(std::string(10'000, 'x'));
  message.add_missing("line\x01");
  for (int i = 0; i < 100; ++i) message.add_missing("more");
  const WorkerEvidence worker = DecodeWorkers(message).at(0);
  EXPECT_EQ(worker.local_rank, LocalRank(0));
  EXPECT_EQ(worker.state, WorkerEvidence::State::kUnknown);
  EXPECT_EQ(worker.idle, Duration::zero());
  EXPECT_THAT(worker.phase, testing::Not(testing::HasSubstr("\n")));
  EXPECT_LE(worker.place.size(), 256);
  EXPECT_THAT(DecodeMissing(message), testing::SizeIs(8));
}

TEST(EvidenceCodecTest, StepTimes) {
  const std::vector<WorkerSteps> workers = {
      {LocalRank(0), {.step = milliseconds(100), .spread = milliseconds(7), .data = milliseconds(20)}},
      {LocalRank(3), {.step = seconds(2), .communication = seconds(1), .own_spread = milliseconds(30)}},
  };
  EXPECT_EQ(DecodeStepTimes(EncodeStepTimes(workers)), workers);
}

TEST(EvidenceCodecTest, StepTimesThatMakeNoSenseAreLeftOut) {
  proto::StepTimes message;
  const auto add = [&message](int rank, int64_t step, int64_t spread, int64_t data, int64_t communication) {
    proto::StepTimes::Worker& worker = *message.add_workers();
    worker.set_local_rank(rank);
    worker.set_step_us(step);
    worker.set_spread_us(spread);
    worker.set_data_us(data);
    worker.set_communication_us(communication);
  };
  add(0, 100, 0, 50, 50);
  add(-1, 100, 0, 0, 0);
  add(1 << 16, 100, 0, 0, 0);
  add(1, -1, 0, 0, 0);
  add(1, INT64_MAX, 0, 0, 0);
  add(1, 100, -1, 0, 0);
  add(1, 100, INT64_MAX, 0, 0);
  add(1, 100, 0, -1, 0);
  add(1, 100, 0, 0, -1);
  add(1, 100, 0, 0, 0);
  message.mutable_workers(message.workers_size() - 1)->set_own_spread_us(-1);
  add(1, 100, 0, 51, 50);
  add(1, 100, 0, INT64_MAX, INT64_MAX);
  EXPECT_EQ(DecodeStepTimes(message).size(), 1);
}

TEST(EvidenceCodecTest, Standstills) {
  const NodeStandstill standstill{
      .level = StandstillLevel::kStill, .reports = true, .ended = false, .idle = milliseconds(12345)};
  EXPECT_EQ(DecodeStandstill(EncodeStandstill(standstill)), standstill);
  EXPECT_EQ(DecodeStandstill(proto::Standstill()), NodeStandstill());
  proto::Standstill strange;
  strange.set_level(static_cast<proto::StandstillLevel>(77));
  EXPECT_EQ(DecodeStandstill(strange).level, StandstillLevel::kHung);
}

}  // namespace
}  // namespace ddprun
