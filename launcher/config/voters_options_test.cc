// --quorum=voters

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/job_rules.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/testing/machine.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Args(std::vector<std::string> more) {
  std::vector<std::string> args = {"--nnodes=1:4", "--rdzv-id=j", "--quorum=voters"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(VotersOptionsTest, NodesOfTheJobAreVoters) {
  const LaunchConfig config = Machine().Launch(Args({"--rdzv-backend=c10d", "--rdzv-endpoint=n1:7"}));
  EXPECT_TRUE(config.has_voters());
  EXPECT_EQ(config.endpoint, (Endpoint{"n1", 7}));
  EXPECT_THAT(config.endpoints, IsEmpty());
  EXPECT_THAT(config.warnings, IsEmpty());
  EXPECT_TRUE(Machine().Launch(Args({})).has_voters());  // the first node chooses the endpoint
  EXPECT_FALSE(Machine().Launch(Args({"--standalone"})).has_voters());
}

TEST(VotersOptionsTest, VotersAreTheDefaultOfSeveralNodesWithC10d) {
  const std::vector<std::string> c10d = {"--rdzv-backend=c10d", "--rdzv-endpoint=n1", "--rdzv-id=j"};
  const auto quorum = [](std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return Machine().Launch(args).rules.quorum;
  };
  EXPECT_EQ(quorum(c10d, {"--nnodes=2"}), Quorum::kVoters);
  EXPECT_EQ(quorum(c10d, {"--nnodes=1:2"}), Quorum::kVoters);
  EXPECT_EQ(quorum(c10d, {"--nnodes=2", "--quorum=none"}), Quorum::kNone);
  EXPECT_EQ(quorum(c10d, {"--nnodes=1"}), Quorum::kNone);
  EXPECT_EQ(quorum({"--nnodes=2", "--node-rank=0", "--master-addr=n1"}, {}), Quorum::kNone);
  EXPECT_EQ(quorum({"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-endpoint=e", "--rdzv-id=j"}, {}),
            Quorum::kNone);
}

TEST(VotersOptionsTest, TheCoordinatorMayBeAtSeveralEndpoints) {
  const LaunchConfig config =
      Machine().Launch(Args({"--rdzv-backend=c10d", "--rdzv-endpoint=n1:7,n2,[fd00::3]:8"}));
  EXPECT_THAT(config.endpoints,
              ElementsAre(Endpoint{"n1", 7}, Endpoint{"n2", 29400}, Endpoint{"fd00::3", 8}));
  EXPECT_EQ(config.endpoint, config.endpoints[0]);
}

TEST(VotersOptionsTest, BadCombinationsAreErrors) {
  const struct {
    std::vector<std::string> args;
    std::string want;
  } cases[] = {
      {{"--rdzv-backend=etcd", "--rdzv-endpoint=e1"}, "voters only with --rdzv-backend=c10d"},
      {{"--nnodes=2", "--node-rank=0", "--master-addr=n1"}, "voters only with --rdzv-backend=c10d"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=n1,n2", "--quorum=none"}, "need --quorum=voters"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=n1,n2,n1:29400"}, "n1:29400 is there twice"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=n1,n2:0"}, "expected addresses of agents"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=n1,"}, "--rdzv-endpoint=n1,"},
      {{"--rdzv-backend=c10d", "--nnodes=3", "--rdzv-endpoint=n1,n2,n3,n4,n5"},
       "at most one more than nodes (3)"},
      {{"--nnodes=1:8", "--rdzv-backend=c10d", "--rdzv-endpoint=a,b,c,d,e,f"}, "at most 5 endpoints"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=n1,n2", "--rdzv-conf=is_host=true"}, "is_host is given"},
  };
  for (const auto& c : cases) {
    std::vector<std::string> args = c.args;
    args.emplace_back("train");
    const absl::Status status = Machine().Parse(Args(args)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << c.want;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.want));
  }
}

}  // namespace
}  // namespace ddprun
