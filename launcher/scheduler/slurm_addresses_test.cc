#include "launcher/scheduler/slurm_addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SlurmAddressesTest, AreThoseOfScontrol) {
  const char line[] =
      "NodeName=node2 Arch=x86_64 CoresPerSocket=8 NodeAddr=10.0.0.7 NodeHostName=rack1-2 Port=17002 "
      "Version=22.05.8\n";
  EXPECT_THAT(ParseNodeAddresses(line, "node2"), ElementsAre("10.0.0.7", "rack1-2"));
  EXPECT_THAT(ParseNodeAddresses("NodeName=n NodeAddr=n NodeHostName=n\n", "n"), IsEmpty());
  EXPECT_THAT(ParseNodeAddresses("NodeName=n NodeAddr=fd00::1 NodeHostName=fd00::1", "n"),
              ElementsAre("fd00::1"));
  EXPECT_THAT(ParseNodeAddresses("Node n not found", "n"), IsEmpty());
}

TEST(SlurmAddressesTest, ANameThatIsNoNodeOfSlurmHasNone) {
  EXPECT_THAT(SlurmAddressesOf("x; touch /tmp/x"), IsEmpty());
  EXPECT_THAT(SlurmAddressesOf("--help"), IsEmpty());
  EXPECT_THAT(SlurmAddressesOf(""), IsEmpty());
}

}  // namespace
}  // namespace ddprun
