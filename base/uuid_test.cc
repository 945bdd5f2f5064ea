#include "base/uuid.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(RandomUuidTest, ReturnsADifferentVersion4UuidEachTime) {
  const std::string uuid = RandomUuid();
  EXPECT_THAT(uuid,
              testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_NE(RandomUuid(), uuid);
}

}  // namespace
}  // namespace ddprun
