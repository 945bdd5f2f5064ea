#include "rendezvous/core/stragglers.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

constexpr milliseconds kStep(100);

class StragglersTest : public testing::Test {
 protected:
  // All ranks have done steps of kStep, of which each needs `own` itself; two ranks on each host.
  std::vector<note::Straggles> Compare(const std::vector<int>& own) {
    now_ += seconds(10);
    for (size_t i = 0; i < own.size(); ++i) Came(static_cast<int>(i), own[i]);
    return stragglers_.Compare(now_);
  }
  void Came(int rank, std::optional<int> own) {
    StepTimes times{.step = kStep};
    if (own) times.communication = kStep - milliseconds(*own);
    stragglers_.Came(Rank(rank), hosts_[rank / 2], times, now_);
  }
  // The number of comparisons until a straggler is found; 0: none in 50.
  int Until(const std::vector<int>& own) {
    for (int i = 1; i <= 50; ++i) {
      if (!Compare(own).empty()) return i;
    }
    return 0;
  }

  const std::vector<std::string> hosts_ = {"n0", "n1", "n2", "n3"};
  TimePoint now_ = TimePoint(seconds(1000));
  Stragglers stragglers_;
};

// The first comparison only begins the time.
constexpr int kFound = Stragglers::kComparisons + 1;

TEST_F(StragglersTest, NamesASlowRankOnceWithItsHost) {
  for (int i = 1; i < kFound; ++i) EXPECT_TRUE(Compare({50, 52, 90, 48}).empty()) << i;
  const std::vector<note::Straggles> found = Compare({50, 52, 90, 48});
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].host, "n1");
  EXPECT_EQ(found[0].ranks, std::vector<Rank>{Rank(2)});
  EXPECT_EQ(found[0].own, milliseconds(90));
  EXPECT_EQ(found[0].median, milliseconds(50));
  EXPECT_EQ(found[0].step, kStep);
  EXPECT_EQ(Until({50, 52, 90, 48}), 0);
  EXPECT_TRUE(stragglers_.ranks().at(Rank(2)).straggles());
  EXPECT_FALSE(stragglers_.ranks().at(Rank(1)).straggles());
  (void)Compare({50, 52, 50, 48});
  EXPECT_FALSE(stragglers_.ranks().at(Rank(2)).straggles());
  EXPECT_EQ(Until({50, 52, 90, 48}), 0) << "it was told in this round";
}

TEST_F(StragglersTest, TheRanksOfAHostAreNamedTogether) {
  std::vector<note::Straggles> found;
  for (int i = 0; i < kFound; ++i) found = Compare({50, 50, 90, 80, 50, 50, 50, 70});
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].ranks, (std::vector<Rank>{Rank(2), Rank(3)}));
  EXPECT_EQ(found[0].own, milliseconds(90));
  EXPECT_EQ(found[1].host, "n3");
  EXPECT_EQ(found[1].ranks, std::vector<Rank>{Rank(7)});
}

TEST_F(StragglersTest, OneGoodComparisonBeginsAnew) {
  for (int i = 0; i < 10; ++i) {
    for (int j = 0; j < Stragglers::kComparisons - 1; ++j) EXPECT_TRUE(Compare({50, 90, 50}).empty());
    EXPECT_TRUE(Compare({50, 50, 50}).empty());
  }
}

TEST_F(StragglersTest, TheSlowerOneOfTwoIsNamed) { EXPECT_EQ(Until({90, 50}), kFound); }

TEST_F(StragglersTest, SmallDifferencesAreNone) {
  EXPECT_EQ(Until({50, 50, 60}), 0) << "a fifth";
  EXPECT_EQ(Until({1, 1, 9}), 0) << "less than a tenth of the step";
  EXPECT_EQ(Until({50, 50, 62}), kFound - 1);
}

TEST_F(StragglersTest, MeansOfIrregularStepsSayLittle) {
  for (const auto& [spread, found] :
       {std::pair(milliseconds(81), false), std::pair(milliseconds(79), true)}) {
    stragglers_ = {};
    bool told = false;
    for (int i = 0; i < 3 * kFound; ++i) {
      now_ += seconds(10);
      Came(0, 50);
      Came(1, 50);
      stragglers_.Came(Rank(2), "n1",
                       {.step = kStep, .communication = milliseconds(10), .own_spread = spread}, now_);
      told = told || !stragglers_.Compare(now_).empty();
    }
    EXPECT_EQ(told, found) << spread.count();
  }
}

TEST_F(StragglersTest, OneRankIsNotCompared) { EXPECT_EQ(Until({90}), 0); }

TEST_F(StragglersTest, RanksWithUnknownCommunicationAreNotCompared) {
  for (int i = 0; i < 20; ++i) {
    now_ += seconds(10);
    Came(0, 50);
    Came(1, std::nullopt);
    Came(2, std::nullopt);
    Came(3, std::nullopt);
    EXPECT_TRUE(stragglers_.Compare(now_).empty()) << "too few are known";
  }
}

TEST_F(StragglersTest, WaitsForAllRanksButNotForEver) {
  int found = 0;
  (void)Compare({50, 50, 50});
  for (int i = 0; i < 12 * Stragglers::kComparisons; ++i) {  // rank 2 sends nothing
    now_ += seconds(5);
    Came(0, 50);
    Came(1, 80);
    if (!stragglers_.Compare(now_).empty()) found = i + 1;
  }
  // All ranks are fresh after 5 s. Then each comparison waits 30 s for rank 2, from the next message on.
  EXPECT_EQ(found, 1 + 7 * (Stragglers::kComparisons - 1));
}

// Two ranks whose messages come in turns, with steps of 20 s.
TEST_F(StragglersTest, LongStepsAreWaitedFor) {
  int found = 0;
  for (int i = 0; i < 6 * kFound; ++i) {
    now_ += seconds(35);
    const Rank rank(i % 2);
    const StepTimes times{.step = seconds(20), .communication = seconds(rank == Rank(1) ? 1 : 10)};
    stragglers_.Came(rank, hosts_[0], times, now_);
    if (!stragglers_.Compare(now_).empty()) found = i + 1;
  }
  EXPECT_EQ(found, 2 * Stragglers::kComparisons);
}

TEST_F(StragglersTest, ACountGoesOnAfterTooFewMessages) {
  for (int i = 0; i < 3; ++i) (void)Compare({50, 50, 90, 50});
  for (int i = 0; i < 14; ++i) {
    now_ += seconds(5);
    Came(2, 90);
    EXPECT_TRUE(stragglers_.Compare(now_).empty());
  }
  EXPECT_EQ(stragglers_.ranks().at(Rank(2)).slow, 2);
}

TEST_F(StragglersTest, ManyMessagesAreNotManyComparisons) {
  for (int i = 0; i < 100; ++i) {
    now_ += milliseconds(100);
    Came(0, 50);
    Came(1, 90);
    EXPECT_TRUE(stragglers_.Compare(now_).empty());
  }
}

TEST_F(StragglersTest, FewHostsAreNamed) {
  size_t told = 0;
  for (int i = 0; i < 3 * kFound; ++i) {
    now_ += seconds(10);
    for (int rank = 0; rank < 100; ++rank) {
      const int own = rank % 3 == 0 ? 90 : 50;
      stragglers_.Came(Rank(rank), std::to_string(rank),
                       {.step = kStep, .communication = kStep - milliseconds(own)}, now_);
    }
    told += stragglers_.Compare(now_).size();
  }
  EXPECT_EQ(told, Stragglers::kMostTold);
}

}  // namespace
}  // namespace ddprun
