// Tests Recover with the ranks of one round, and with what they claim to have from the round before. recover_test.cc has
// rounds that end.
#include "worker_sdk/recover/recover_in.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/communicator.h"
#include "ddprun/data_parallel.h"
#include "ddprun/optim.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/testing/rank_threads.h"
#include "worker_sdk/ddp/last_step.h"
#include "worker_sdk/ddp/testing/model.h"
#include "worker_sdk/device/host/gradients.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

constexpr int64_t kRound = 8;

// A process that was a member of the rounds up to `round`, with state that counts.
StateHistory HistoryUpTo(int64_t round) {
  StateHistory history;
  history.Recovered(round);
  history.Leave(round);
  return history;
}

TEST(StateHistoryTest, CountsRoundsWithoutAGap) {
  StateHistory history;
  EXPECT_EQ(history.previous_round(), -1);
  history.Leave(0);  // Recover has not succeeded
  EXPECT_EQ(history.previous_round(), -1);
  history.Recovered(1);
  EXPECT_EQ(history.previous_round(), -1);
  history.Leave(1);
  EXPECT_EQ(history.previous_round(), 1);
  history.Leave(2);  // ended before Recover, and no rank can have gone further
  EXPECT_EQ(history.previous_round(), 2);
  history.Leave(4);  // round 3 was without this process
  EXPECT_EQ(history.previous_round(), 2);
  history.Leave(5);
  EXPECT_EQ(history.previous_round(), 2);
  history.Recovered(6);
  history.Leave(6);
  EXPECT_EQ(history.previous_round(), 6);
}

// A rank's state; all elements have the value `value`.
struct Rank {
  explicit Rank(double value) {
    for (const int64_t count : {3, 700}) model.Add(count);
    optimizer = MakeAdamW(model.parameters(), {.learning_rate = 0.1}).value();
    for (const Tensor& tensor : Tensors()) {
      for (int64_t i = 0; i < tensor.count; ++i) SetElement(tensor, i, value);
    }
  }
  std::vector<Tensor> Tensors() {
    std::vector<Tensor> tensors;
    for (const Parameter& p : model.parameters()) tensors.push_back(p.value);
    for (const StateTensor& tensor : optimizer->state()) tensors.push_back(tensor.values);
    tensors.push_back(View(more));
    return tensors;
  }
  void ExpectAll(double value) {
    for (const Tensor& tensor : Tensors()) EXPECT_THAT(Elements(tensor), testing::Each(value));
  }
  RecoverOptions Options() {
    return {.step = &step,
            .parameters = model.parameters(),
            .optimizer = optimizer.get(),
            .more = {View(more)},
            .committed = [this](int64_t s) { counted.push_back(s); }};
  }
  FakeModel model;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<double> more = std::vector<double>(5);
  int64_t step = -1;
  std::vector<int64_t> counted;
};

TEST(RecoverInTest, WithoutStateTheStepIsMinusOne) {
  for (const int world : {1, 3}) {
    WithRanks(world, [](Communicator& comm) {
      Rank rank(comm.rank());
      StateHistory history;
      rank.step = comm.rank() == 1 ? 9 : -1;  // it does not count
      const auto recovered = RecoverIn(history, 0, 0, comm, rank.Options());
      ASSERT_TRUE(recovered.ok()) << recovered.status();
      EXPECT_EQ(recovered->root, -1);
      EXPECT_EQ(recovered->num_joiners, comm.size());
      EXPECT_EQ(rank.step, -1);
      rank.ExpectAll(comm.rank());
      history.Leave(0);
      EXPECT_EQ(history.previous_round(), 0);
    });
  }
}

// Rank 0 is new, rank 2 has missed a round; ranks 1 and 3 are survivors.
TEST(RecoverInTest, JoinersGetTheStateOfASurvivor) {
  WithRanks(4, [](Communicator& comm) {
    const int r = comm.rank();
    Rank rank(10 + (r % 2 == 1 ? 0 : r));
    StateHistory history = r == 0 ? StateHistory() : HistoryUpTo(r == 2 ? kRound - 2 : kRound - 1);
    rank.step = r == 0 ? -1 : r == 2 ? 100 : 6;
    const auto recovered = RecoverIn(history, kRound, r / 2, comm, rank.Options());
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    EXPECT_EQ(recovered->root, 1);
    EXPECT_EQ(recovered->num_joiners, 2);
    EXPECT_EQ(rank.step, 6);
    rank.ExpectAll(10);
    EXPECT_THAT(rank.counted, testing::IsEmpty());
    history.Leave(kRound);
    EXPECT_EQ(history.previous_round(), kRound);
  });
}

TEST(RecoverInTest, AllRanksHaveTheFirstFaultOfAnArgument) {
  const auto run = [](const std::function<void(RecoverOptions&, Rank&)>& change,
                      const std::string& expected) {
    SCOPED_TRACE(expected);
    WithRanks(3, [&](Communicator& comm) {
      Rank rank(comm.rank());
      StateHistory history = HistoryUpTo(kRound - 1);
      rank.step = 5;
      RecoverOptions options = rank.Options();
      if (comm.rank() == 1) change(options, rank);
      const Status status = RecoverIn(history, kRound, 0, comm, options).status();
      EXPECT_TRUE(IsInvalidArgument(status)) << status;
      EXPECT_THAT(status.message(), HasSubstr(expected));
      rank.ExpectAll(comm.rank());
      EXPECT_EQ(comm.Barrier().Wait(), OkStatus()) << "the communicator is usable";
      history.Leave(kRound);
      EXPECT_EQ(history.previous_round(), kRound) << "the state counts, as before";
    });
  };
  run([](RecoverOptions& o, Rank&) { o.step = nullptr; }, "RecoverOptions::step is null");
  run([](RecoverOptions&, Rank& rank) { rank.step = -2; }, "*RecoverOptions::step is -2");
  run([](RecoverOptions& o, Rank&) { o.parameters.pop_back(); }, "for other parameters");
  run([](RecoverOptions& o, Rank&) { o.optimizer = nullptr; }, "optimizer");
  run([](RecoverOptions& o, Rank&) { o.more.clear(); }, "RecoverOptions::more");
  run([](RecoverOptions& o, Rank&) { o.more[0].count = 4; }, "tensor 0 of RecoverOptions::more");
  run([](RecoverOptions& o, Rank&) { o.more[0].device = {DeviceType::kCuda, 0}; }, "GPU");
  run([](RecoverOptions& o, Rank&) { o.parameters[1].name = "other"; }, "other");
  std::optional<DataParallel> last;
  run(
      [&](RecoverOptions& o, Rank& rank) {
        last =
            *DataParallel::Create(Communicator(std::make_shared<CountingGroup>(1)), rank.model.parameters());
        o.last = &*last;
      },
      "atomic_steps");
}

// Operations fail from the barrier of the first step on.
class WithoutBarrier : public CountingGroup {
 public:
  WithoutBarrier() : CountingGroup(1) {}
  std::shared_ptr<internal::Operation> Start(const internal::Call& call, const void* in, void* out) override {
    if (call.kind != internal::OpKind::kBarrier || !fails) return CountingGroup::Start(call, in, out);
    return Refuse(call, UnavailableError("rank 1 of round 7 is gone"));
  }
  bool fails = true;
};

Status FinishStep(DataParallel& dp, Optimizer* optimizer, int64_t step) {
  return StepInOrder(dp, 0, step, FillWhole, Backwards(dp), {.optimizer = optimizer, .step = {.step = step}});
}

// A rank that is prepared, one that has committed the step and counted it, one that has not counted it, and a new one.
TEST(RecoverInTest, APreparedStepIsAppliedBeforeJoinersGetTheState) {
  WithRanks(4, [](Communicator& comm) {
    const int r = comm.rank();
    Rank rank(r == 3 ? 7 : 10);
    StateHistory history = r == 3 ? StateHistory() : HistoryUpTo(kRound - 1);
    std::optional<DataParallel> last;
    RecoverOptions options = rank.Options();
    options.committed = [&](int64_t step) {
      rank.counted.push_back(step);
      rank.more[0] = 11;  // what the program does after a step
    };
    if (r < 3) {
      const auto group = std::make_shared<WithoutBarrier>();
      group->fails = r == 0;
      last = *DataParallel::Create(Communicator(group), rank.model.parameters(), {.atomic_steps = true});
      EXPECT_EQ(FinishStep(*last, rank.optimizer.get(), 6).ok(), r != 0);
      options.last = &*last;
      rank.step = r == 1 ? 6 : 5;
      if (r == 1) rank.more[0] = 11;
    }
    const auto recovered = RecoverIn(history, kRound, 0, comm, options);
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    EXPECT_EQ(recovered->root, 0);
    EXPECT_EQ(rank.step, 6);
    EXPECT_EQ(rank.counted, r == 0 || r == 2 ? std::vector<int64_t>{6} : std::vector<int64_t>());
    EXPECT_EQ(rank.more[0], 11);
    std::string state;
    for (const Tensor& tensor : rank.Tensors()) state += Bytes(tensor);
    std::vector<char> of_first(state.begin(), state.end());
    const Tensor bytes{of_first.data(), static_cast<int64_t>(of_first.size()), DType::kUInt8};
    ASSERT_EQ(comm.Broadcast(bytes, 0).Wait(), OkStatus());
    EXPECT_EQ(std::memcmp(of_first.data(), state.data(), state.size()), 0);
    EXPECT_NE(Elements(rank.model.parameters()[0].value)[0], 10) << "the step changes the parameters";

    // `last` is ignored from now on.
    if (r < 3) {
      EXPECT_EQ(internal::LastStep(*last).committed(), -1);
      EXPECT_EQ(internal::LastStep(*last).prepared(), -1);
    }
    history.Leave(kRound);
    const auto again = RecoverIn(history, kRound + 1, 0, comm, options);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->num_joiners, 0);
    EXPECT_EQ(rank.step, 6);
  });
}

// Rank 1 was not prepared for the step.
TEST(RecoverInTest, AStepThatARankHasNotPreparedIsDropped) {
  WithRanks(2, [](Communicator& comm) {
    Rank rank(10);
    StateHistory history = HistoryUpTo(kRound - 1);
    std::optional<DataParallel> last = *DataParallel::Create(Communicator(std::make_shared<WithoutBarrier>()),
                                                             rank.model.parameters(), {.atomic_steps = true});
    if (comm.rank() == 0) {
      EXPECT_FALSE(FinishStep(*last, rank.optimizer.get(), 6).ok());
    }
    RecoverOptions options = rank.Options();
    options.last = &*last;
    rank.step = 5;
    const auto recovered = RecoverIn(history, kRound, 0, comm, options);
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    EXPECT_EQ(recovered->num_joiners, 0);
    EXPECT_EQ(rank.step, 5);
    rank.ExpectAll(10);
    EXPECT_EQ(internal::LastStep(*last).prepared(), -1);
  });
}

TEST(RecoverInTest, APreparedStepOfAnotherOptimizerIsAFault) {
  WithRanks(2, [](Communicator& comm) {
    Rank rank(10);
    StateHistory history = HistoryUpTo(kRound - 1);
    auto last = *DataParallel::Create(Communicator(std::make_shared<WithoutBarrier>()),
                                      rank.model.parameters(), {.atomic_steps = true});
    EXPECT_FALSE(FinishStep(last, rank.optimizer.get(), 6).ok());
    RecoverOptions options = rank.Options();
    options.last = &last;
    rank.step = 5;
    const auto other = MakeAdamW(rank.model.parameters(), {.learning_rate = 0.1}).value();
    if (comm.rank() == 1) options.optimizer = other.get();
    const Status status = RecoverIn(history, kRound, 0, comm, options).status();
    EXPECT_TRUE(IsInvalidArgument(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("is not that of step 6, which is prepared"));
    EXPECT_EQ(internal::LastStep(last).prepared(), 6);
  });
}

TEST(RecoverInTest, StepsThatCannotBeAreAnErrorOnAllRanks) {
  WithRanks(3, [](Communicator& comm) {
    Rank rank(comm.rank());
    StateHistory history = HistoryUpTo(kRound - 1);
    rank.step = comm.rank() == 2 ? 7 : 5;
    const Status status = RecoverIn(history, kRound, 0, comm, rank.Options()).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
    EXPECT_THAT(status.message(), HasSubstr("rank 2 has step 7"));
    rank.ExpectAll(comm.rank());
    EXPECT_EQ(rank.step, comm.rank() == 2 ? 7 : 5);
  });
}

}  // namespace
}  // namespace ddprun
