#include "tests/sim/world/sim_network.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ddprun::sim {
namespace {

class SimNetworkTest : public testing::Test {
 protected:
  SimNetwork Make(PathQuality quality) { return SimNetwork(&clock_, Random(7), quality); }
  void AddHosts(SimNetwork& net, int n) {
    arrived_.resize(n);
    for (int i = 0; i < n; ++i) {
      net.AddHost([this, i](const Packet& p) { arrived_[i].push_back(p.seq); });
    }
  }
  static Packet Make(HostId from, HostId to, uint64_t seq) { return {.from = from, .to = to, .seq = seq}; }

  SimClock clock_;
  std::vector<std::vector<uint64_t>> arrived_;
};

TEST_F(SimNetworkTest, AGoodPathDeliversEachPacketOnceWithinItsDelay) {
  SimNetwork net = Make({.min_delay = milliseconds(2), .max_delay = milliseconds(3)});
  AddHosts(net, 2);
  net.Send(Make(0, 1, 5));
  clock_.RunUntil(SimClock::kStart + milliseconds(2) - Duration(1));
  EXPECT_TRUE(arrived_[1].empty());
  clock_.RunUntil(SimClock::kStart + milliseconds(3));
  EXPECT_EQ(arrived_[1], std::vector<uint64_t>{5});
  EXPECT_TRUE(arrived_[0].empty());
}

TEST_F(SimNetworkTest, ABadPathLosesDuplicatesAndReordersPackets) {
  SimNetwork net = Make({.max_delay = milliseconds(5), .loss = 0.2, .twice = 0.1});
  AddHosts(net, 2);
  for (uint64_t i = 0; i < 1000; ++i) net.Send(Make(0, 1, i));
  clock_.RunUntil(SimClock::kStart + seconds(1));
  const std::vector<uint64_t>& got = arrived_[1];
  EXPECT_NEAR(net.num_lost(), 200, 50);
  EXPECT_NEAR(net.num_twice(), 80, 30);
  EXPECT_EQ(static_cast<int64_t>(got.size()), 1000 - net.num_lost() + net.num_twice());
  EXPECT_EQ(std::set<uint64_t>(got.begin(), got.end()).size(), 1000u - net.num_lost());
  EXPECT_FALSE(std::is_sorted(got.begin(), got.end()));
}

TEST_F(SimNetworkTest, AOneWayCutDoesNotAffectTheOtherDirection) {
  SimNetwork net = Make({});
  AddHosts(net, 3);
  const auto cut = net.Disturb({.from = {0}, .to = {1}, .loss = 1});
  net.Send(Make(0, 1, 1));
  net.Send(Make(1, 0, 2));
  net.Send(Make(0, 2, 3));
  clock_.RunUntil(SimClock::kStart + seconds(1));
  EXPECT_TRUE(arrived_[1].empty());
  EXPECT_EQ(arrived_[0], std::vector<uint64_t>{2});
  EXPECT_EQ(arrived_[2], std::vector<uint64_t>{3});
  net.Heal(cut);
  net.Send(Make(0, 1, 4));
  clock_.RunUntil(SimClock::kStart + seconds(2));
  EXPECT_EQ(arrived_[1], std::vector<uint64_t>{4});
}

TEST_F(SimNetworkTest, ASlowHostIsSlowForAllPeers) {
  SimNetwork net = Make({});
  AddHosts(net, 2);
  net.Disturb({.to = {1}, .min_delay = seconds(2), .max_delay = seconds(2)});
  net.Send(Make(0, 1, 1));
  clock_.RunUntil(SimClock::kStart + seconds(2));
  EXPECT_TRUE(arrived_[1].empty());
  clock_.RunUntil(SimClock::kStart + seconds(3));
  EXPECT_EQ(arrived_[1], std::vector<uint64_t>{1});
}

TEST_F(SimNetworkTest, AHostWithoutPowerNeitherSendsNorReceivesAndLosesPacketsInFlight) {
  SimNetwork net = Make({});
  AddHosts(net, 2);
  net.Send(Make(0, 1, 1));
  net.SetUp(1, false);
  net.Send(Make(1, 0, 2));
  clock_.RunUntil(SimClock::kStart + seconds(1));
  net.SetUp(1, true);
  net.Send(Make(0, 1, 3));
  clock_.RunUntil(SimClock::kStart + seconds(2));
  EXPECT_TRUE(arrived_[0].empty());
  EXPECT_EQ(arrived_[1], std::vector<uint64_t>{3});
}

TEST_F(SimNetworkTest, HealAllEndsEveryDisturbanceAndLoopbackIsNeverDisturbed) {
  SimNetwork net = Make({.loss = 0.5});
  AddHosts(net, 2);
  net.Disturb({.loss = 1});
  net.Send(Make(0, 0, 1));  // to itself
  net.Send(Make(0, 1, 2));
  net.HealAll({});
  net.Send(Make(0, 1, 3));
  clock_.RunUntil(SimClock::kStart + seconds(1));
  EXPECT_EQ(arrived_[0], std::vector<uint64_t>{1});
  EXPECT_EQ(arrived_[1], std::vector<uint64_t>{3});
}

class HostClockTest : public testing::TestWithParam<int> {};

TEST_P(HostClockTest, DriftsAndConvertsBackToSimulatedTime) {
  const int drift_ppm = GetParam();
  SimClock sim;
  const HostClock clock(&sim, seconds(-500), drift_ppm);
  EXPECT_EQ(clock.now(), SimClock::kStart - seconds(500));
  sim.RunUntil(SimClock::kStart + seconds(1000));
  EXPECT_EQ(clock.now(), SimClock::kStart + seconds(500) + milliseconds(drift_ppm));
  for (int i = 0; i < 1000; ++i) {
    const TimePoint due = clock.now() + std::chrono::microseconds(int64_t{7'654'321} * i);
    const TimePoint at = clock.ToSim(due);
    sim.RunUntil(at);
    // A timer that fired early would make its owner set another timer for the same deadline.
    ASSERT_GE(clock.now(), due);
    ASSERT_LE(clock.now(), due + std::chrono::microseconds(8));
  }
}
INSTANTIATE_TEST_SUITE_P(Drifts, HostClockTest, testing::Values(-100'000, -200, 0, 1, 200, 100'000));

}  // namespace
}  // namespace ddprun::sim
