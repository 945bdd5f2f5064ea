// Context::Survive and NextRound, with an agent that the test plays. The ranks are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/event.h"
#include "base/time.h"
#include "base/worker_env.h"
#include "base/worker_message.h"
#include "ddprun/communicator.h"
#include "ddprun/context.h"
#include "ddprun/status.h"
#include "worker_sdk/context_state.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/store/testing/fake_c10d_server.h"
#include "worker_sdk/testing/fake_agent.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

// Far less than the setup timeout of Connect, 60 s, and far more than it takes.
constexpr Duration kAtOnce = seconds(10);
const Status kGone = UnavailableError("rank 2 of round 7 is gone");

TimePoint Now() { return std::chrono::steady_clock::now(); }

AgentRequest Agrees(int64_t round) { return {.round = Round(round), .may_survive = true}; }
AgentRequest Over(int64_t round) { return {.round = Round(round), .may_survive = true, .round_over = true}; }

enum class Nodes { kOne, kOneForEachRank };

// A rank of round 7, and the agent's end of its connection.
class Worker {
 public:
  Worker(int rank, int world_size, const FakeC10dServer& store, Nodes nodes = Nodes::kOneForEachRank) {
    agent.Listen();
    WorkerEnv env;
    env.rank = Rank(rank);
    env.world_size = world_size;
    if (nodes == Nodes::kOne) {
      env.local_rank = LocalRank(rank);
      env.local_world_size = world_size;
    } else {
      env.group_rank = GroupRank(rank);
      env.group_world_size = world_size;
      env.node_addr = "127.0.0.1";
    }
    env.master_addr = "127.0.0.1";
    env.master_port = store.port();
    env.round = Round(7);
    env.run_id = "next_round_test";
    env.agent_socket = agent.name();
    context.emplace(std::make_unique<internal::ContextState>(env));
  }

  void Survive() {
    context->Survive();
    ASSERT_TRUE(agent.AwaitSurvival(SurvivalState::kAsks).has_value());
    agent.Ask(Agrees(7));
    const TimePoint deadline = Now() + seconds(30);
    while (!context->MayContinue(kGone) && Now() < deadline) std::this_thread::yield();
    ASSERT_TRUE(context->MayContinue(kGone));
  }
  // Waits until the worker is parked for `round`.
  void AwaitParked(int64_t round) {
    const std::optional<WorkerSurvival> parked = agent.AwaitSurvival(SurvivalState::kParked);
    ASSERT_TRUE(parked.has_value());
    EXPECT_EQ(parked->round, Round(round));
  }

  FakeAgent agent;
  std::optional<Context> context;
};

RoundOffer Offer(int64_t round, int rank, int world_size, const FakeC10dServer& store) {
  return {.round = Round(round),
          .rank = Rank(rank),
          .group_rank = GroupRank(rank),
          .world_size = world_size,
          .group_world_size = world_size,
          .restart_count = 3,
          .master_addr = "127.0.0.1",
          .master_port = store.port(),
          .node_addr = "127.0.0.1"};
}

class NextRoundTest : public testing::Test {
 protected:
  void Start(int world_size) {
    for (int r = 0; r < world_size; ++r) {
      workers_.push_back(std::make_unique<Worker>(r, world_size, store_));
      workers_.back()->Survive();
    }
  }
  // Runs `body` for each worker on a thread of its own, and `agent` meanwhile.
  template <typename Body, typename Agent>
  void RunAll(const Body& body, const Agent& agent) {
    std::vector<std::thread> threads;
    for (const auto& worker : workers_) threads.emplace_back([&body, &worker] { body(*worker->context); });
    agent();
    for (std::thread& thread : threads) thread.join();
  }

  FakeC10dServer store_, next_store_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

int64_t SumOfRanks(Communicator comm) {
  int64_t sum = comm.rank();
  EXPECT_EQ(comm.AllReduce({&sum, 1, DType::kInt64}, ReduceOp::kSum).Wait(), OkStatus());
  return sum;
}

TEST_F(NextRoundTest, WithoutAnAgentThatAgreesSurviveHasNoEffect) {
  Worker worker(0, 1, store_);
  EXPECT_FALSE(worker.context->MayContinue(kGone));
  EXPECT_THAT(worker.context->NextRound(kGone).status().message(), HasSubstr("Survive() was not called"));
  worker.context->Survive();  // this agent does not answer
  worker.context->Survive();
  worker.context->Report(1);
  ASSERT_TRUE(worker.agent.Next().has_value());
  EXPECT_TRUE(worker.agent.NextSurvival().has_value());
  EXPECT_FALSE(worker.agent.NextSurvival().has_value()) << "once";
  worker.agent.Ask({.round = Round(7), .take_snapshot = true});
  while (!worker.context->snapshot_requested()) worker.context->Report(2);
  EXPECT_FALSE(worker.context->MayContinue(kGone));
  StatusOr<Communicator> world = worker.context->Connect();
  ASSERT_TRUE(world.ok()) << world.status();
  const Status status = worker.context->NextRound(kGone).status();
  EXPECT_TRUE(IsFailedPrecondition(status)) << status;
  EXPECT_EQ(SumOfRanks(*world), 0) << "nothing has changed";

  WorkerEnv torchrun;
  Context none(std::make_unique<internal::ContextState>(torchrun));
  none.Survive();
  EXPECT_FALSE(none.MayContinue(kGone));
}

TEST_F(NextRoundTest, TheRanksOfARoundMeetAgain) {
  Start(3);
  std::latch all_have_the_sum(3);
  RunAll(
      [&](Context& context) {
        const int first = context.rank();
        StatusOr<Communicator> world = context.Connect();
        ASSERT_TRUE(world.ok()) << world.status();
        StatusOr<Communicator> second = context.Connect();
        ASSERT_TRUE(second.ok()) << second.status();
        const StatusOr<Buffer> buffer = world->Allocate(DType::kFloat32, 100);
        ASSERT_TRUE(buffer.ok()) << buffer.status();
        auto* const mine = static_cast<float*>(buffer->tensor().data);
        mine[7] = static_cast<float>(first);
        context.ReportSnapshot(5);
        EXPECT_EQ(SumOfRanks(*world), 3);
        all_have_the_sum.arrive_and_wait();
        // One rank ends the round, the others learn of it in an operation.
        Status why = AbortedError("rank 1 has had enough");
        if (first != 1) why = world->Barrier().Wait();
        ASSERT_TRUE(IsAborted(why)) << why;

        StatusOr<Communicator> next = context.NextRound(why);
        ASSERT_TRUE(next.ok()) << next.status();
        EXPECT_EQ(context.rank(), (first + 1) % 3);
        EXPECT_EQ(context.node_rank(), context.rank());
        EXPECT_EQ(context.local_rank(), 0);
        EXPECT_EQ(context.world_size(), 3);
        EXPECT_EQ(context.num_nodes(), 3);
        EXPECT_EQ(context.round(), 8);
        EXPECT_EQ(context.restart_count(), 3);
        EXPECT_EQ(next->rank(), context.rank());
        EXPECT_EQ(SumOfRanks(*next), 3);
        StatusOr<Communicator> another = context.Connect();
        ASSERT_TRUE(another.ok()) << another.status();
        EXPECT_EQ(SumOfRanks(*another), 3);

        EXPECT_EQ(world->rank(), first);
        EXPECT_TRUE(IsAborted(world->status())) << world->status();
        EXPECT_TRUE(IsAborted(second->status())) << "of every Connect";
        EXPECT_FALSE(second->Barrier().Wait().ok());
        EXPECT_EQ(mine[7], static_cast<float>(first));
        context.Report(6);
      },
      [&] {
        for (const auto& worker : workers_) worker->AwaitParked(7);
        for (int r = 0; r < 3; ++r) workers_[r]->agent.Offer(Offer(8, (r + 1) % 3, 3, next_store_));
      });
  for (int r = 0; r < 3; ++r) {
    EXPECT_TRUE(workers_[r]->context->MayContinue(kGone));
    const std::optional<WorkerReport> snapshot =
        workers_[r]->agent.Await([](const WorkerReport& report) { return report.step == 5; });
    ASSERT_TRUE(snapshot.has_value());
    EXPECT_EQ(snapshot->snapshot_step, 5);
    const std::optional<WorkerReport> report =
        workers_[r]->agent.Await([](const WorkerReport& report) { return report.step == 6; });
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->round, Round(8));
    EXPECT_EQ(report->rank, Rank((r + 1) % 3));
    EXPECT_FALSE(report->snapshot_step.has_value());
  }
  EXPECT_EQ(next_store_.ValueOf("/ddprun/7/comm/0/node/0"), "");
  EXPECT_NE(next_store_.ValueOf("/ddprun/8/comm/0/node/0"), "") << "Connect counts from 0 in each round";
}

TEST_F(NextRoundTest, TheWorldMayShrink) {
  Start(3);
  Event parked;
  std::latch all_are_connected(3);
  RunAll(
      [&](Context& context) {
        StatusOr<Communicator> world = context.Connect();
        all_are_connected.arrive_and_wait();
        ASSERT_TRUE(world.ok()) << world.status();
        if (context.rank() == 0) {
          world->Abort("test");
          return parked.Wait();
        }
        const Status why = world->Barrier().Wait();
        StatusOr<Communicator> next = context.NextRound(why);
        ASSERT_TRUE(next.ok()) << next.status();
        EXPECT_EQ(context.world_size(), 1);
        EXPECT_EQ(SumOfRanks(*next), 0);
      },
      [&] {
        for (const int r : {1, 2}) {
          workers_[r]->AwaitParked(7);
          RoundOffer offer = Offer(8, 0, 1, next_store_);
          workers_[r]->agent.Offer(offer);
        }
        parked.Set();
      });
}

TEST_F(NextRoundTest, TheRanksOfANodeMeetAgain) {
  for (int r = 0; r < 2; ++r) {
    workers_.push_back(std::make_unique<Worker>(r, 2, store_, Nodes::kOne));
    workers_.back()->Survive();
  }
  std::latch all_have_the_sum(2);
  RunAll(
      [&](Context& context) {
        StatusOr<Communicator> world = context.Connect();
        ASSERT_TRUE(world.ok()) << world.status();
        const StatusOr<Buffer> buffer = world->Allocate(DType::kFloat32, 100);
        ASSERT_TRUE(buffer.ok()) << buffer.status();
        auto* const mine = static_cast<float*>(buffer->tensor().data);
        mine[7] = 3;
        EXPECT_EQ(SumOfRanks(*world), 1);
        all_have_the_sum.arrive_and_wait();
        world->Abort("test");
        const StatusOr<Communicator> next = context.NextRound(world->status());
        ASSERT_TRUE(next.ok()) << next.status();
        EXPECT_EQ(SumOfRanks(*next), 1);
        EXPECT_EQ(mine[7], 3);
        EXPECT_TRUE(IsAborted(world->status()));
      },
      [&] {
        for (int r = 0; r < 2; ++r) workers_[r]->AwaitParked(7);
        for (int r = 0; r < 2; ++r) {
          RoundOffer offer = Offer(8, r, 2, next_store_);
          offer.group_rank = GroupRank(0);
          offer.group_world_size = 1;
          workers_[r]->agent.Offer(offer);
        }
      });
}

// A rank that waits for another one in the store, and one that waits for connections.
TEST_F(NextRoundTest, TheEndOfTheRoundEndsASetupThatBlocks) {
  for (const int rank : {0, 1}) {
    SCOPED_TRACE(rank);
    Event waits;
    FakeC10dServer store;
    store.waits = &waits;
    Worker worker(rank, 2, store, Nodes::kOne);
    worker.Survive();
    Status status;
    TimePoint ended;
    std::thread connects([&] {
      status = worker.context->Connect().status();
      ended = Now();
    });
    if (rank == 1) {
      ASSERT_TRUE(waits.WaitUntil(Now() + seconds(30)));
    } else {
      while (store.ValueOf("/ddprun/7/comm/0/node/0").empty()) std::this_thread::yield();
    }
    const TimePoint asked = Now();
    worker.agent.Ask(Over(7));
    connects.join();
    EXPECT_LT(ended - asked, kAtOnce);
    EXPECT_EQ(status, AbortedError(StrCat("rank ", rank,
                                          " of round 7 gave up: the round is over: its agent has ended it")));
    EXPECT_EQ(worker.context->Connect().status(), status) << "a setup that begins later";
    EXPECT_TRUE(worker.context->MayContinue(status));
  }
}

TEST_F(NextRoundTest, AnErrorOfTheSetupMayLeadToAnotherRound) {
  Start(1);
  Context& context = *workers_[0]->context;
  FakeAgent& agent = workers_[0]->agent;
  std::thread program([&] {
    ConnectOptions options;
    options.setup_timeout = milliseconds(50);
    Status status = context.NextRound(kGone, options).status();
    EXPECT_EQ(context.round(), 8);
    EXPECT_TRUE(IsDeadlineExceeded(status)) << "the other rank does not appear: " << status;
    ASSERT_TRUE(context.MayContinue(status));
    const StatusOr<Communicator> world = context.NextRound(status);
    EXPECT_TRUE(world.ok()) << world.status();
    EXPECT_EQ(context.round(), 10);
  });
  workers_[0]->AwaitParked(7);
  agent.Offer(Offer(8, 1, 2, next_store_));
  workers_[0]->AwaitParked(8);
  agent.Offer(Offer(10, 0, 1, next_store_));
  program.join();
}

TEST_F(NextRoundTest, NoRoundFollows) {
  Start(1);
  Context& context = *workers_[0]->context;
  std::thread program([&] {
    const Status status = context.NextRound(kGone).status();
    EXPECT_TRUE(IsFailedPrecondition(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("next round: no round follows round 7"));
    EXPECT_FALSE(context.MayContinue(kGone));
    EXPECT_TRUE(IsFailedPrecondition(context.NextRound(kGone).status()));
  });
  workers_[0]->AwaitParked(7);
  workers_[0]->agent.Ask(
      {.round = Round(7), .may_survive = true, .round_over = true, .no_round_follows = true});
  program.join();
}

TEST_F(NextRoundTest, ARequestForASnapshotIsForgottenWithItsRound) {
  Start(1);
  Context& context = *workers_[0]->context;
  FakeAgent& agent = workers_[0]->agent;
  agent.Ask({.round = Round(7), .take_snapshot = true, .may_survive = true});
  while (!context.snapshot_requested()) context.Report(1);
  std::thread program([&] {
    EXPECT_TRUE(context.NextRound(kGone).ok());
    EXPECT_FALSE(context.snapshot_requested());
    context.Report(1);
    EXPECT_FALSE(context.snapshot_requested());
  });
  workers_[0]->AwaitParked(7);
  agent.Offer(Offer(8, 0, 1, next_store_));
  program.join();
}

}  // namespace
}  // namespace ddprun
