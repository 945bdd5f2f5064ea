#include "base/text.h"

#include <chrono>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(TextTest, CountedAddsAPluralS) {
  EXPECT_EQ(Counted(0, "node"), "0 nodes");
  EXPECT_EQ(Counted(1, "node"), "1 node");
  EXPECT_EQ(Counted(2, "worker"), "2 workers");
}

TEST(TextTest, InSecondsRoundsDown) {
  EXPECT_EQ(InSeconds(milliseconds(350)), "350 ms");
  EXPECT_EQ(InSeconds(milliseconds(1000)), "1 s");
  EXPECT_EQ(InSeconds(milliseconds(12'999)), "12 s");
}

TEST(TextTest, InBytesUsesTheLargestUnit) {
  EXPECT_EQ(InBytes(0), "0 bytes");
  EXPECT_EQ(InBytes(1), "1 byte");
  EXPECT_EQ(InBytes(1023), "1023 bytes");
  EXPECT_EQ(InBytes(1024), "1.0 KiB");
  EXPECT_EQ(InBytes(20 << 20), "20.0 MiB");
  EXPECT_EQ(InBytes(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(InBytes(uint64_t{4096} << 40), "4096.0 TiB");
}

TEST(TextTest, InThreeDigits) {
  using std::chrono::microseconds;
  EXPECT_EQ(InThreeDigits(Duration(0)), "0.000 ms");
  EXPECT_EQ(InThreeDigits(microseconds(412)), "0.412 ms");
  EXPECT_EQ(InThreeDigits(microseconds(4120)), "4.12 ms");
  EXPECT_EQ(InThreeDigits(microseconds(41200)), "41.2 ms");
  EXPECT_EQ(InThreeDigits(milliseconds(1412)), "1412 ms");
  EXPECT_EQ(InThreeDigits(milliseconds(12345)), "12.3 s");
  EXPECT_EQ(InThreeDigits(seconds(3600)), "3600 s");
}

TEST(TextTest, InLargestUnitsUsesTwoUnits) {
  using std::chrono::hours;
  using std::chrono::minutes;
  EXPECT_EQ(InLargestUnits(milliseconds(-5)), "0 ms");
  EXPECT_EQ(InLargestUnits(milliseconds(350)), "350 ms");
  EXPECT_EQ(InLargestUnits(milliseconds(1000)), "1.0 s");
  EXPECT_EQ(InLargestUnits(milliseconds(59'999)), "59.9 s");
  EXPECT_EQ(InLargestUnits(seconds(302)), "5 min 2 s");
  EXPECT_EQ(InLargestUnits(minutes(192)), "3 h 12 min");
  EXPECT_EQ(InLargestUnits(hours(51)), "2 d 3 h");
}

}  // namespace
}  // namespace ddprun
