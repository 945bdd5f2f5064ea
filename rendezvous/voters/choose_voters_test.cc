#include "rendezvous/voters/choose_voters.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using testing::ElementsAre;

TEST(ChooseVotersTest, TheLeaderThenTheVotersThenTheLowestRanks) {
  EXPECT_THAT(
      ChooseVoters({{"h0", "a0", 0}, {"h1", "a1", 1}, {"h2", "a2", 2, /*leads=*/true}, {"h3", "a3", 3}},
                   {.number = 1, .now = {.voters = {{"x", "a3"}, {"gone", "a9"}}}}),
      ElementsAre("a2", "a3", "a0", "a1"));
}

TEST(ChooseVotersTest, ANodeThatWaitsForTheNextRoundStaysAVoterButDoesNotBecomeOne) {
  EXPECT_THAT(ChooseVoters({{"h0", "a0", 0, /*leads=*/false, /*in_round=*/false},
                            {"h1", "a1", 0, /*leads=*/false, /*in_round=*/false},
                            {"h2", "a2", 2}},
                           {.number = 1, .now = {.voters = {{"x", "a0"}}}}),
              ElementsAre("a0", "a2"));
}

TEST(ChooseVotersTest, OneOfEachHost) {
  EXPECT_THAT(
      ChooseVoters({{"h0", "a0", 0}, {"h0", "a1", 1, /*leads=*/true}, {"h1", "a2", 2}, {"h1", "a3", 3}}, {}),
      ElementsAre("a1", "a2"));
}

TEST(ChooseVotersTest, AllIfThereIsOneHost) {
  EXPECT_THAT(ChooseVoters({{"h0", "a0", 0}, {"h0", "a1", 1, /*leads=*/true}}, {}), ElementsAre("a1", "a0"));
  EXPECT_THAT(ChooseVoters({}, {}), ElementsAre());
}

TEST(ChooseVotersTest, WitnessesIfThereAreFewerThanThreeNodes) {
  const std::vector<std::string> witnesses = {"w0", "w1"};
  EXPECT_THAT(ChooseVoters({}, {}, witnesses), ElementsAre());
  EXPECT_THAT(ChooseVoters({{"h0", "a0", 0}}, {}, witnesses), ElementsAre("a0", "w0", "w1"));
  EXPECT_THAT(ChooseVoters({{"h0", "a0", 0}, {"h1", "a1", 1}}, {}, witnesses), ElementsAre("a0", "a1", "w0"));
  EXPECT_THAT(ChooseVoters({{"h0", "a0", 0}, {"h1", "a1", 1}, {"h2", "a2", 2}}, {}, witnesses),
              ElementsAre("a0", "a1", "a2"));
}

TEST(ChooseVotersTest, AtMostTen) {
  std::vector<VoterCandidate> nodes;
  for (int i = 0; i < 1000; ++i) nodes.push_back({"h" + std::to_string(i), "a" + std::to_string(i), i});
  EXPECT_EQ(ChooseVoters(nodes, {}).size(), 10);
}

}  // namespace
}  // namespace ddprun
