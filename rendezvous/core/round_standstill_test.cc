// Rounds that stand still.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/core/round_machine_fixture.h"

namespace ddprun {
namespace {

using Level = StandstillLevel;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RoundStandstillTest : public RoundMachineTest {
 protected:
  // Nodes a and b run round 0, with two workers each.
  void Run(JobRules rules = {.min_nodes = 2,
                             .max_nodes = 2,
                             .max_restarts = 3,
                             .exclude_after = 1,
                             .on_hang = OnHang::kRestart}) {
    Use(rules);
    Join("a", 2);
    ASSERT_THAT(Join("b", 2), testing::SizeIs(2));
    Stand(Level::kMoving);
  }
  Words Stands(const std::string& id, Level level, int round = 0) {
    return Step(
        StandstillChanged{NodeId(id), Round(round), {.level = level, .reports = true, .idle = seconds(10)}});
  }
  Words Stand(Level level) {
    Words words = Stands("a", level);
    for (std::string& w : Stands("b", level)) words.push_back(std::move(w));
    return words;
  }
  // The nodes that were asked for evidence in the last step, with the number of the request.
  Words Asked() const {
    Words asked;
    for (const RoundEffect& e : last_) {
      if (const auto* ask = std::get_if<CollectEvidence>(&e)) {
        asked.push_back(absl::StrCat(ask->node.value(), " ", ask->request));
      }
    }
    return asked;
  }
  Words Evidence(const std::string& id, WorkerEvidence::State first, int64_t request = 1) {
    return Step(
        EvidenceCame{.node = NodeId(id),
                     .round = Round(0),
                     .request = request,
                     .workers = {{.local_rank = LocalRank(0), .pid = 77, .state = first, .step = 9},
                                 {.local_rank = LocalRank(1), .state = WorkerEvidence::State::kSleeping}}});
  }
  // The texts of the notes of the last step.
  Words Notes() const {
    Words notes;
    for (const RoundEffect& e : last_) {
      if (const auto* note = std::get_if<Note>(&e)) notes.push_back(ToText(*note).reason);
    }
    return notes;
  }
};

TEST_F(RoundStandstillTest, EvidenceThenANoteThenTheEndOfTheRound) {
  Run();
  Stand(Level::kSuspect);
  EXPECT_THAT(Asked(), ElementsAre("a 1", "b 1"));
  Evidence("a", WorkerEvidence::State::kSleeping);
  Evidence("b", WorkerEvidence::State::kStopped);
  EXPECT_THAT(Stand(Level::kStill), IsEmpty());
  const std::string finding = "rank 2 on host-b is stopped by a signal, at step 9; 3 others sleep";
  EXPECT_THAT(Notes(), ElementsAre("round 0 has made no progress for 10 s: " + finding));
  EXPECT_EQ(machine_->standstill(), "round 0 has made no progress for 10 s: " + finding);
  EXPECT_THAT(Stand(Level::kHung), ElementsAre("a:stop r0", "b:stop r0 kill 0"));
  EXPECT_EQ(machine_->standstill(), "");
  EXPECT_EQ(StopReason(), "round 0 has made no progress for 10 s: " + finding);
  Ready("a", 0, 101);
  // The next round starts; the host of a rank that is proven to be behind is charged.
  EXPECT_THAT(Ready("b", 0, 102), testing::Contains(HasSubstr("start r1")));
  ASSERT_NE(Report(), nullptr);
  const Failure& failure = Report()->groups.at(0).first;
  EXPECT_EQ(failure.rank, Rank(2));
  EXPECT_EQ(failure.host, "host-b");
  EXPECT_EQ(failure.pid, 77);
  EXPECT_EQ(failure.step, 9);
  EXPECT_EQ(failure.exit, ExitInfo(Hung{finding, true}));
  EXPECT_EQ(Report()->outcome, "restart 1 of 3");
  EXPECT_TRUE(machine_->membership().Find(NodeId("b"))->excluded);
}

TEST_F(RoundStandstillTest, AHostIsNotChargedWithoutProof) {
  Run();
  Stand(Level::kSuspect);
  Evidence("a", WorkerEvidence::State::kSleeping);
  Stand(Level::kHung);
  Ready("a", 0, 101);
  Ready("b", 0, 102);
  EXPECT_EQ(machine_->restarts(), 1);
  EXPECT_EQ(Report()->groups.at(0).first.exit,
            ExitInfo(Hung{"ranks 0 (host-a), 1 (host-a) sleep; host-b has sent no evidence", false}));
  for (const char* id : {"a", "b"}) EXPECT_FALSE(machine_->membership().Find(NodeId(id))->excluded);
}

TEST_F(RoundStandstillTest, FailuresOfTheNodesAreReportedBesideIt) {
  Run();
  Stand(Level::kHung);
  Ready("a", 0, 101,
        {{.rank = Rank(1), .exit = Exited{3}, .failed_at = now_ + seconds(1), .cause = "rank 1 failed"}});
  Ready("b", 0, 102);
  ASSERT_EQ(Report()->groups.size(), 2);
  EXPECT_TRUE(std::holds_alternative<Hung>(Report()->groups[0].first.exit));
}

TEST_F(RoundStandstillTest, ProgressEndsIt) {
  Run();
  Stand(Level::kStill);
  now_ += HangMachine::kEvidenceTime / 2;
  for (const char* id : {"a", "b"}) Step(NodeHeard{NodeId(id)});
  EXPECT_THAT(Notes(), IsEmpty());
  now_ += HangMachine::kEvidenceTime / 2;
  Step(NodeHeard{NodeId("a")});
  EXPECT_THAT(Notes(), ElementsAre("round 0 has made no progress for 10 s: 2 nodes have sent no evidence"));
  Stands("b", Level::kMoving);
  EXPECT_THAT(Notes(), ElementsAre("round 0 makes progress again"));
  EXPECT_EQ(machine_->standstill(), "");
  EXPECT_THAT(Stands("a", Level::kHung), IsEmpty());
}

TEST_F(RoundStandstillTest, OnHangReportOnlyReports) {
  Run({.min_nodes = 2, .max_nodes = 2, .max_restarts = 3, .on_hang = OnHang::kReport});
  EXPECT_THAT(Stand(Level::kHung), IsEmpty());
  EXPECT_THAT(Notes(), ElementsAre(HasSubstr("has made no progress")));
  EXPECT_EQ(machine_->state(), RoundMachine::State::kRunning);
}

TEST_F(RoundStandstillTest, ADebuggerKeepsTheRound) {
  Run();
  Stand(Level::kSuspect);
  Evidence("a", WorkerEvidence::State::kTraced);
  EXPECT_THAT(Stand(Level::kHung), IsEmpty());
  EXPECT_EQ(machine_->state(), RoundMachine::State::kRunning);

  // Half a minute later the debugger has gone.
  Words asked;
  for (Duration left = HangMachine::kPostponed; left > Duration::zero(); left -= seconds(2)) {
    now_ += seconds(2);
    for (const char* id : {"a", "b"}) {
      Step(NodeHeard{NodeId(id)});
      for (std::string& ask : Asked()) asked.push_back(std::move(ask));
    }
  }
  EXPECT_THAT(asked, ElementsAre("a 2", "b 2"));
  EXPECT_THAT(Evidence("a", WorkerEvidence::State::kSleeping, 2), IsEmpty());
  EXPECT_THAT(Evidence("b", WorkerEvidence::State::kSleeping, 2), ElementsAre("a:stop r0", "b:stop r0"));
}

TEST_F(RoundStandstillTest, OnlyTheRunningRoundIsJudged) {
  Run();
  Stands("a", Level::kHung, 7);
  Stands("b", Level::kHung, 7);
  EXPECT_EQ(machine_->state(), RoundMachine::State::kRunning);
  Failed("a", 0);
  EXPECT_THAT(Stand(Level::kHung), IsEmpty());  // it is draining
  Ready("a", 0, 101);
  Ready("b", 0, 102);
  // The levels of round 0 do not count in round 1.
  for (const char* id : {"a", "b"}) Stands(id, Level::kMoving, 1);
  Stands("a", Level::kHung, 1);
  EXPECT_EQ(machine_->state(), RoundMachine::State::kRunning);
}

TEST_F(RoundStandstillTest, ANodeWhoseWorkersHaveSucceededDoesNotHoldItBack) {
  Run();
  Stands("b", Level::kHung);
  Succeeded("a", 0);
  EXPECT_EQ(machine_->state(), RoundMachine::State::kDraining);
}

TEST_F(RoundStandstillTest, AStragglerIsToldOnceInARound) {
  Run();
  Words told;
  const auto steps = [&] {
    now_ += seconds(10);
    for (const char* id : {"a", "b"}) {
      StepsTimed timed{.node = NodeId(id), .round = Round(0)};
      for (int i = 0; i < 3; ++i) {  // the last one is no worker of the node
        const bool slow = id == std::string("b") && i == 1;
        timed.workers.push_back(
            {LocalRank(i), {.step = milliseconds(100), .communication = milliseconds(slow ? 10 : 60)}});
      }
      (void)Step(timed);
      for (std::string& note : Notes()) told.push_back(std::move(note));
    }
  };
  for (int i = 0; i < 20; ++i) steps();
  EXPECT_THAT(told,
              ElementsAre("rank 3 on host-b is slower than the others: it needs 90.0 ms of its own for each "
                          "step of 100 ms; the median of all ranks is 40.0 ms"));
  ASSERT_NE(machine_->stragglers(), nullptr);
  EXPECT_EQ(machine_->stragglers()->ranks().size(), 4);
  EXPECT_TRUE(machine_->stragglers()->ranks().at(Rank(3)).straggles());

  (void)Step(WorkersFailed{NodeId("a"), Round(0), {.exit = Exited{1}}});
  EXPECT_EQ(machine_->stragglers(), nullptr) << "the round does not run";
  steps();
  EXPECT_EQ(told.size(), 1);
}

}  // namespace
}  // namespace ddprun
