#include "base/failure.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

Failure Of(int rank, int failed_at_ms, FailureOrigin origin) {
  return {.rank = Rank(rank), .origin = origin, .failed_at = TimePoint(milliseconds(failed_at_ms))};
}

TEST(FailureTest, PrecedesComparesOriginThenTimeThenRank) {
  const std::vector<Failure> in_order = {
      Of(7, 20, FailureOrigin::kOwn),
      Of(8, 20, FailureOrigin::kOwn),
      Of(1, 30, FailureOrigin::kOwn),
      Of(6, 10, FailureOrigin::kFollowsAnother),
      Of(0, 11, FailureOrigin::kFollowsAnother),
      Of(2, 0, FailureOrigin::kStopped),
  };
  for (size_t a = 0; a < in_order.size(); ++a) {
    for (size_t b = 0; b < in_order.size(); ++b) {
      EXPECT_EQ(Precedes(in_order[a], in_order[b]), a < b) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace ddprun
