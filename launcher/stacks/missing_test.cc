#include "launcher/stacks/missing.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using testing::ElementsAre;

TEST(MissingTest, EachReasonOnce) {
  Missing missing;
  for (const pid_t pid : {15, 11, 14, 12, 13}) missing.Add("no stacks", "a", pid);
  missing.Add("no stacks", "b", 2);
  missing.Add("not all stacks", "b", 2);
  missing.Add("not all stacks", "b", 3);
  EXPECT_THAT(missing.Sentences(),
              ElementsAre("no stacks of process 2: b", "no stacks of processes 11, 12, 13 and 2 more: a",
                          "not all stacks of processes 2 and 3: b"));
}

}  // namespace
}  // namespace ddprun
