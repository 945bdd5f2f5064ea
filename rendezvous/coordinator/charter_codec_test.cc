#include "rendezvous/coordinator/charter_codec.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Charter FullCharter() {
  return {.rules = {.min_nodes = 2,
                    .max_nodes = 4,
                    .max_restarts = 3,
                    .lease = milliseconds(1500),
                    .scale_up = ScaleUp::kAtSnapshot,
                    .quorum = Quorum::kMajority},
          .round = Round(7),
          .restarts = 2,
          .furthest = FurthestStep::From({.step = 900, .further = true, .restarts = 1}),
          .hosts = HostFailures::From({{"node1", 1}, {"node2", 3}}),
          .losses = LossStreak::From(4, 800),
          .electorate = {"node1", "node1", "node2"},
          .coordinator_host = "node1",
          .coordinator_node = NodeId("node1/12/ab"),
          .coordinator_token = "secret",
          .expected_hosts = {{"node1", "node2", "node3"}},
          .drains = {{GroupRank(2), "maintenance"}},
          .end = Charter::End{Dismissal::kFailed, "rank 1 exit 1"}};
}

TEST(CharterCodecTest, DecodesWhatItEncodes) {
  for (const Charter& charter : {FullCharter(), Charter()}) {
    const absl::StatusOr<Charter> decoded = DecodeCharter("job", EncodeCharter("job", charter));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, charter);
  }
}

TEST(CharterCodecTest, AnEmptyListOfExpectedHostsIsNotNone) {
  Charter charter;
  charter.expected_hosts.emplace();
  EXPECT_EQ(*DecodeCharter("job", EncodeCharter("job", charter)), charter);
}

TEST(CharterCodecTest, TheBytesOfAChartersTextAreThoseOfTheCharter) {
  EXPECT_EQ(CharterBytes(*DecodeCharter("job", EncodeCharter("job", FullCharter()))),
            CharterBytes(FullCharter()));
  Charter other = FullCharter();
  ++other.restarts;
  EXPECT_NE(CharterBytes(other), CharterBytes(FullCharter()));
}

TEST(CharterCodecTest, RefusesTheCharterOfAnotherJob) {
  const absl::Status status = DecodeCharter("mine", EncodeCharter("other", FullCharter())).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("that of job other, not of mine"), HasSubstr("--rdzv-id")));
}

TEST(CharterCodecTest, RefusesAnotherFormat) {
  const std::string later =
      absl::StrReplaceAll(EncodeCharter("job", FullCharter()), {{"\"format\":1", "\"format\":2"}});
  const absl::Status status = DecodeCharter("job", later).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("format 2, and this ddprun knows 1"));
}

TEST(CharterCodecTest, RefusesWhatIsNoCharter) {
  const std::string good = EncodeCharter("job", FullCharter());
  for (const std::string& bad : {std::string(), std::string("{"), std::string("[]"), std::string("{}"),
                                 good.substr(0, good.size() / 2), std::string("\xff\xfe\0garbage", 10),
                                 absl::StrReplaceAll(good, {{"\"restarts\":2", "\"restarts\":-2"}}),
                                 absl::StrReplaceAll(good, {{"\"restarts\":2", "\"restarts\":\"two\""}}),
                                 absl::StrReplaceAll(good, {{"min_nodes", "min_knots"}})}) {
    const absl::Status status = DecodeCharter("job", bad).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_THAT(std::string(status.message()), HasSubstr("not the charter of a ddprun job")) << bad;
  }
}

}  // namespace
}  // namespace ddprun
