#include "base/ids.h"

#include <map>
#include <sstream>
#include <type_traits>
#include <unordered_set>

#include "absl/container/flat_hash_set.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(NodeIdTest, DoesNotConvertToOrFromString) {
  EXPECT_FALSE((std::is_convertible_v<std::string, NodeId>));
  EXPECT_FALSE((std::is_convertible_v<NodeId, std::string>));
}

TEST(NodeIdTest, IsOrderedHashedAndPrintedAsItsValue) {
  const NodeId a("a"), b("b");
  EXPECT_LT(a, b);
  EXPECT_EQ(a, NodeId("a"));
  EXPECT_TRUE(NodeId().empty());
  EXPECT_TRUE((std::unordered_set<NodeId>{a, b}.contains(NodeId("b"))));
  EXPECT_TRUE((absl::flat_hash_set<NodeId>{a, b}.contains(NodeId("b"))));
  std::ostringstream out;
  out << a;
  EXPECT_EQ(out.str(), "a");
}

}  // namespace
}  // namespace ddprun
