// Tests DecideStep in all worlds of a few ranks: every order of contributing gradients, preparing, committing, deaths, ends
// of rounds, actions and broadcasts, up to a limit of each. The value of a rank's state is its history: for each step, the
// round that computed it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/recover/decide_step.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

using Rule = std::function<StatusOr<Decision>(int64_t round, const std::vector<Standing>& standings)>;

struct Rank {
  int previous_round = -1;
  int step = -1;  // the length of `history`, or -1
  int prepared = -1;
  std::string history;
  // In this round.
  bool alive = true;
  bool recovered = false;  // has returned from Recover
  int contributed = -1;    // the last step to whose gradients it has contributed
  int entered = -1;        // the last step whose barrier it has entered
  int round_prepared = 0;  // that computed `prepared`

  std::string Key() const {
    return StrCat(previous_round, ",", step, ",", prepared, ",", history, ",", alive, recovered, ",",
                  contributed, ",", entered, ",", round_prepared, ";");
  }
};

struct World {
  int round = 0;
  std::vector<Rank> ranks;
  std::vector<Rank> spares;  // processes that live, and are in no round
  std::string furthest;      // the longest history that any rank has committed since a snapshot was loaded
  int kills = 0;
  int ends = 0;                       // rounds that ended
  std::optional<std::string> agreed;  // with which the first rank returned from Recover

  std::string Key() const {
    std::string key = StrCat(round, ",", furthest, ",", kills, ",", ends, ",", agreed.value_or("?"), ";");
    for (const Rank& rank : ranks) key += rank.Key();
    key += "/";
    for (const Rank& rank : spares) key += rank.Key();
    return key;
  }
};

struct Limits {
  int ranks = 0, kills = 0, rounds = 0, steps = 0;
  bool empty_model = false;  // preparing needs no gradients of others
  bool any_membership_counts =
      false;  // a mutant: every round that a process leaves becomes its previous_round
};

struct Findings {
  std::string violation;  // the first; empty: none
  int64_t worlds = 0;
  // Decisions in which ...
  int64_t applied = 0, dropped = 0, both = 0, joined = 0, missed = 0;
  int64_t repeated = 0;       // some rank had recovered in the round before, and some survivor had not
  int64_t only_the_dead = 0;  // only dead ranks had committed the step
  int64_t no_state = 0;       // no rank had state
};

bool IsPrefix(const std::string& prefix, const std::string& of) { return of.starts_with(prefix); }

class Explorer {
 public:
  Explorer(Limits limits, Rule rule) : limits_(limits), rule_(std::move(rule)) {}

  Findings Run() {
    World world;
    world.ranks.resize(limits_.ranks);
    Add(world);
    while (!starts_.empty() && findings_.violation.empty()) {
      const World start = std::move(starts_.back());
      starts_.pop_back();
      RunRound(start);
    }
    return findings_;
  }

 private:
  void Fail(const World& world, const std::string& what) {
    if (findings_.violation.empty()) findings_.violation = StrCat(what, " in ", world.Key());
  }

  // A round that may start.
  void Add(const World& world) {
    if (seen_starts_.insert(world.Key()).second) starts_.push_back(world);
  }

  static bool Survived(const World& world, const Rank& rank) {
    return rank.previous_round >= 0 && rank.previous_round == world.round - 1 && rank.step >= 0;
  }

  void RunRound(const World& start) {
    std::vector<Standing> standings;
    for (const Rank& rank : start.ranks) {
      standings.push_back(
          {.previous_round = rank.previous_round, .step = rank.step, .prepared = rank.prepared, .node = 0});
    }
    const StatusOr<Decision> decided = rule_(start.round, standings);
    if (!decided.ok()) return Fail(start, StrCat("error: ", decided.status().message()));
    decision_ = *decided;
    World world = start;
    const bool any = std::ranges::any_of(world.ranks, [&](const Rank& r) { return Survived(world, r); });
    if (any != (decision_.step >= 0))
      return Fail(start, "memory of the round before is not used, or other memory is");
    Count(world);
    if (!any) world.furthest.clear();  // continues from a snapshot, which has no steps
    std::vector<World> worlds;
    seen_.clear();
    const auto add = [&](World next) {
      if (seen_.insert(next.Key()).second) worlds.push_back(std::move(next));
    };
    add(world);
    while (!worlds.empty() && findings_.violation.empty()) {
      const World now = std::move(worlds.back());
      worlds.pop_back();
      ++findings_.worlds;
      for (int r = 0; r < limits_.ranks && r < static_cast<int>(now.ranks.size()); ++r) {
        for (const auto step : {&Explorer::Kill, &Explorer::Recover, &Explorer::Contribute,
                                &Explorer::Prepare, &Explorer::Commit}) {
          World next = now;
          if (next.ranks[r].alive && (this->*step)(next, r)) add(std::move(next));
        }
      }
      EndRound(now);
    }
  }

  void Count(const World& world) {
    bool applies = false, drops = false, joins = false, some = false, committed = false;
    for (size_t r = 0; r < world.ranks.size(); ++r) {
      const Rank& rank = world.ranks[r];
      applies |= decision_.actions[r] == StepAction::kApply;
      drops |= decision_.actions[r] == StepAction::kDrop && Survived(world, rank);
      joins |= !Survived(world, rank);
      findings_.missed += rank.previous_round >= 0 && rank.previous_round < world.round - 1;
      some |= rank.round_prepared == world.round - 2 && rank.prepared >= 0;
      committed |= Survived(world, rank) && rank.step == decision_.step;
    }
    findings_.applied += applies;
    findings_.dropped += drops;
    findings_.both += applies && drops;
    findings_.joined += joins && decision_.step >= 0;
    findings_.no_state += decision_.step < 0;
    findings_.repeated += some && decision_.step >= 0;
    findings_.only_the_dead +=
        applies && !committed && static_cast<int>(world.furthest.size()) == decision_.step;
  }

  // Each of these does one thing of a live rank; false: it cannot happen now.
  bool Kill(World& world, int r) {
    if (world.kills == limits_.kills) return false;
    ++world.kills;
    world.ranks[r].alive = false;
    return true;
  }

  // A survivor acts. A joiner gets the root's state, whether or not the root lives on; without state, it loads a snapshot.
  bool Recover(World& world, int r) {
    Rank& rank = world.ranks[r];
    if (rank.recovered) return false;
    if (std::ranges::count(decision_.joiners, r) == 0) {
      if (decision_.actions[r] == StepAction::kApply) {
        if (rank.prepared != rank.step + 1) Fail(world, StrCat("rank ", r, " has nothing to apply"));
        rank.history += static_cast<char>('0' + rank.round_prepared);
        ++rank.step;
      }
      if (decision_.actions[r] == StepAction::kNothing && rank.prepared >= 0)
        Fail(world, "a prepared step is kept");
    } else if (decision_.step < 0) {
      rank.step = 0;
      rank.history.clear();
    } else {
      const Rank& root = world.ranks[decision_.root];
      if (!root.recovered) return false;
      rank.step = decision_.step;
      // The root may have committed a step since; the joiner got what it had before.
      rank.history = world.agreed->substr(0, decision_.step);
    }
    rank.prepared = -1;
    rank.recovered = true;
    if (decision_.step >= 0 && rank.step != decision_.step)
      Fail(world, StrCat("rank ", r, " is not at the step of all ranks"));
    if (!IsPrefix(world.furthest, rank.history)) Fail(world, StrCat("a committed step is lost on rank ", r));
    if (!world.agreed) world.agreed = rank.history;
    if (*world.agreed != rank.history) Fail(world, StrCat("a torn step on rank ", r));
    return true;
  }

  bool Contribute(World& world, int r) {
    Rank& rank = world.ranks[r];
    const int next = rank.step + 1;
    if (!rank.recovered || rank.prepared >= 0 || rank.contributed == next || next > limits_.steps)
      return false;
    rank.contributed = next;
    return true;
  }

  bool Prepare(World& world, int r) {
    Rank& rank = world.ranks[r];
    const int next = rank.step + 1;
    if (rank.prepared >= 0 || rank.contributed != next) return false;
    const auto behind = [&](const Rank& other) { return other.contributed < next; };
    if (!limits_.empty_model && std::ranges::any_of(world.ranks, behind)) return false;
    rank.prepared = rank.entered = next;
    rank.round_prepared = limits_.empty_model ? 0 : world.round;
    return true;
  }

  bool Commit(World& world, int r) {
    Rank& rank = world.ranks[r];
    if (!rank.recovered || rank.prepared < 0) return false;
    if (std::ranges::any_of(world.ranks, [&](const Rank& other) { return other.entered < rank.prepared; }))
      return false;
    rank.history += static_cast<char>('0' + rank.round_prepared);
    rank.step = rank.prepared;
    rank.prepared = -1;
    if (rank.history.size() > world.furthest.size()) world.furthest = rank.history;
    if (!IsPrefix(rank.history, world.furthest)) Fail(world, "two ranks have committed different steps");
    return true;
  }

  // A round may end at any moment. The live ranks park. The next round has them and new processes, or fewer ranks; one of
  // them may be left out, and a process that was left out may be back.
  void EndRound(const World& now) {
    if (now.ends + 1 >= limits_.rounds) return;
    World next{.round = now.round + 1,
               .ranks = {},
               .spares = {},
               .furthest = now.furthest,
               .kills = now.kills,
               .ends = now.ends + 1,
               .agreed = std::nullopt};
    World smaller = next;
    for (const Rank& rank : now.ranks) {
      Rank parked;
      if (rank.alive) {
        parked = rank;
        const bool counts =
            rank.recovered || rank.previous_round == now.round - 1 || limits_.any_membership_counts;
        if (counts) parked.previous_round = now.round;
        parked.recovered = false;
        parked.contributed = parked.entered = -1;
        if (parked.prepared < 0) parked.round_prepared = 0;
        smaller.ranks.push_back(parked);
      }
      next.ranks.push_back(parked);
    }
    next.spares = smaller.spares = now.spares;
    AddWithSpares(next);
    if (!smaller.ranks.empty() && smaller.ranks.size() < now.ranks.size()) AddWithSpares(smaller);
  }

  void AddWithSpares(const World& next) {
    Add(next);
    for (size_t r = 0; r < next.ranks.size(); ++r) {
      World other = next;
      if (next.spares.empty() && next.ranks[r].previous_round >= 0 && next.ranks.size() > 1) {
        other.spares.push_back(other.ranks[r]);
        other.ranks.erase(other.ranks.begin() + static_cast<ptrdiff_t>(r));
        Add(other);
      } else if (!next.spares.empty() && next.ranks[r].previous_round < 0) {
        other.ranks[r] = other.spares.back();
        other.spares.pop_back();
        Add(other);
      }
    }
  }

  const Limits limits_;
  const Rule rule_;
  Findings findings_;
  Decision decision_;  // of the current round
  std::vector<World> starts_;
  std::unordered_set<std::string> seen_starts_, seen_;
};

StatusOr<Decision> Decide(int64_t round, const std::vector<Standing>& standings) {
  return DecideStep(round, standings);
}

// Two ranks with many rounds and steps; more ranks with fewer.
const Limits kTwo = {.ranks = 2, .kills = 3, .rounds = 5, .steps = 3};
const Limits kThree = {.ranks = 3, .kills = 3, .rounds = 4, .steps = 2};
const Limits kFour = {.ranks = 4, .kills = 2, .rounds = 3, .steps = 2};

class DecideStepWorldsTest : public testing::TestWithParam<Limits> {};
INSTANTIATE_TEST_SUITE_P(Worlds, DecideStepWorldsTest, testing::Values(kTwo, kThree, kFour),
                         [](const auto& info) { return StrCat(info.param.ranks); });

TEST_P(DecideStepWorldsTest, NoCommittedStepIsLostAndNoneIsTorn) {
  const Findings found = Explorer(GetParam(), Decide).Run();
  EXPECT_EQ(found.violation, "");
  RecordProperty("worlds", StrCat(found.worlds));
  EXPECT_GT(found.worlds, 10000);
  EXPECT_GT(found.applied, 0);
  EXPECT_GT(found.dropped, 0);
  EXPECT_EQ(found.both, 0);
  EXPECT_GT(found.joined, 0);
  EXPECT_GT(found.missed, 0);
  EXPECT_GT(found.repeated, 0);
  EXPECT_GT(found.only_the_dead, 0);
  EXPECT_GT(found.no_state, 0);
}

// Without parameters, ranks prepare a step without the others, and its value does not depend on the round.
TEST(DecideStepEmptyModelTest, RanksThatPrepareAloneAreReconciled) {
  for (Limits limits : {kTwo, kThree}) {
    limits.empty_model = true;
    const Findings found = Explorer(limits, Decide).Run();
    EXPECT_EQ(found.violation, "");
    EXPECT_GT(found.both, 0);
  }
}

// Wrong rules, each of which must lead to a violation.

TEST_P(DecideStepWorldsTest, TheMaximumIsFound) {
  const Rule rule = [](int64_t round, const std::vector<Standing>& standings) -> StatusOr<Decision> {
    DDPRUN_ASSIGN_OR_RETURN(Decision decision, DecideStep(round, standings));
    if (decision.step < 0) return decision;
    for (size_t r = 0; r < standings.size(); ++r) {
      if (std::ranges::count(decision.joiners, static_cast<int>(r)) > 0) continue;
      decision.step = std::max({decision.step, standings[r].step, standings[r].prepared});
      if (standings[r].prepared >= 0) decision.actions[r] = StepAction::kApply;
    }
    return decision;
  };
  EXPECT_THAT(Explorer(GetParam(), rule).Run().violation, HasSubstr("is not at the step of all ranks"));
}

TEST_P(DecideStepWorldsTest, AlwaysDroppingIsFound) {
  const Rule rule = [](int64_t round, const std::vector<Standing>& standings) -> StatusOr<Decision> {
    DDPRUN_ASSIGN_OR_RETURN(Decision decision, DecideStep(round, standings));
    for (size_t r = 0; r < standings.size(); ++r) {
      if (decision.actions[r] != StepAction::kApply) continue;
      decision.actions[r] = StepAction::kDrop;
      decision.step = standings[r].step;
    }
    return decision;
  };
  EXPECT_THAT(Explorer(GetParam(), rule).Run().violation,
              AnyOf(HasSubstr("is lost"), HasSubstr("is not at the step of all ranks")));
}

// Applies whatever is prepared, without a look at the others.
TEST_P(DecideStepWorldsTest, AlwaysApplyingIsFound) {
  const Rule rule = [](int64_t round, const std::vector<Standing>& standings) -> StatusOr<Decision> {
    DDPRUN_ASSIGN_OR_RETURN(Decision decision, DecideStep(round, standings));
    for (StepAction& action : decision.actions) {
      if (action == StepAction::kDrop) action = StepAction::kApply;
    }
    return decision;
  };
  EXPECT_THAT(Explorer(GetParam(), rule).Run().violation, HasSubstr("is not at the step of all ranks"));
}

TEST_P(DecideStepWorldsTest, JoinersThatCountAsSurvivorsAreFound) {
  const Rule rule = [](int64_t round, std::vector<Standing> standings) {
    if (std::ranges::any_of(standings, [&](const Standing& s) { return s.step >= 0; })) {
      for (Standing& s : standings) s = {round - 1, std::max<int64_t>(s.step, 0), s.prepared, s.node};
    }
    return DecideStep(round, standings);
  };
  EXPECT_THAT(Explorer(GetParam(), rule).Run().violation, Not(testing::IsEmpty()));
}

TEST_P(DecideStepWorldsTest, StateOfAnOlderRoundIsFound) {
  const Rule rule = [](int64_t round, std::vector<Standing> standings) {
    for (Standing& s : standings) s.previous_round = s.previous_round < 0 ? -1 : round - 1;
    return DecideStep(round, standings);
  };
  EXPECT_THAT(Explorer(GetParam(), rule).Run().violation, Not(testing::IsEmpty()));
}

// A process that missed a round, and was a member of the next one, which ended before it recovered.
TEST(DecideStepMutantTest, APreviousRoundThatCatchesUpWithoutRecoveryIsFound) {
  Limits limits = kThree;
  limits.any_membership_counts = true;
  EXPECT_THAT(Explorer(limits, Decide).Run().violation, Not(testing::IsEmpty()));
}

}  // namespace
}  // namespace ddprun
