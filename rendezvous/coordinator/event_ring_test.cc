#include "rendezvous/coordinator/event_ring.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

constexpr TimePoint kStart{seconds(1000)};
constexpr std::chrono::system_clock::time_point kWall{std::chrono::milliseconds(1'600'000'000'123)};

TEST(EventRingTest, AfterReturnsEventsWithGreaterNumbers) {
  EventRing ring;
  EXPECT_EQ(ring.After(0), "");
  EXPECT_EQ(ring.last(), nullptr);
  ring.Add("node_joined", "node \"a\"", kStart, kWall);
  ring.Add("round_sealed", "all joined", kStart + milliseconds(1500), kWall);
  const std::string first =
      "{\"seq\":1,\"ms\":0,\"time\":\"2020-09-13T12:26:40.123Z\",\"event\":\"node_joined\",\"reason\":\"node "
      "\\\"a\\\"\"}\n";
  const std::string second =
      "{\"seq\":2,\"ms\":1500,\"time\":\"2020-09-13T12:26:40.123Z\",\"event\":\"round_sealed\",\"reason\":"
      "\"all "
      "joined\"}\n";
  EXPECT_EQ(ring.After(0), first + second);
  EXPECT_EQ(ring.After(1), second);
  EXPECT_EQ(ring.After(2), "");
  EXPECT_EQ(ring.last()->seq, 2u);
}

TEST(EventRingTest, KeepsTheLastEvents) {
  EventRing ring;
  for (int i = 1; i <= 1500; ++i) ring.Add("e", absl::StrCat(i), kStart, kWall);
  EXPECT_THAT(ring.After(0), StartsWith("{\"seq\":501,"));
  ring.Keep(1);
  EXPECT_THAT(ring.After(0), StartsWith("{\"seq\":1500,"));
  EXPECT_THAT(ring.After(0), EndsWith("\"reason\":\"1500\"}\n"));
}

}  // namespace
}  // namespace ddprun
