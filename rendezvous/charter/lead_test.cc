#include "rendezvous/charter/lead.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

const Lead kLead = {.epoch = 7,
                    .leader = "node1/42/9f",
                    .address = "10.0.0.1:29400",
                    .lease = seconds(5),
                    .swap = 12,
                    .charter = 3};

TEST(LeadTest, SurvivesEncoding) {
  for (const Lead::State state : {Lead::State::kLeads, Lead::State::kLeft, Lead::State::kClosed}) {
    Lead lead = kLead;
    lead.state = state;
    const absl::StatusOr<Lead> decoded = DecodeLead(EncodeLead(lead));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, lead);
  }
}

TEST(LeadTest, IsReadableForPeople) {
  EXPECT_EQ(
      EncodeLead(kLead),
      R"({"format":1,"epoch":7,"leader":"node1/42/9f","address":"10.0.0.1:29400","state":"leads","lease_ms":5000,"swap":12,"charter":3})");
}

TEST(LeadTest, RefusesWhatIsNoLead) {
  const struct {
    std::string encoded;
    std::string why;
  } kCases[] = {
      {"", "not a JSON object"},
      {"[1]", "not a JSON object"},
      {"garbage \xff", "not a JSON object"},
      {std::string(5000, ' '), "5000 bytes"},
      {"{}", "no format"},
      {R"({"format":"1"})", "no format"},
      {R"({"format":2,"epoch":7})", "has format 2, and this ddprun knows 1"},
      {R"({"format":1,"epoch":7})", "a field is missing"},
      {R"({"format":1,"epoch":-7,"leader":"a","address":"b","state":"leads","swap":1,"charter":0})",
       "a field is missing"},
      {R"({"format":1,"epoch":7,"leader":"a","address":"b","state":"dances","lease_ms":5000,"swap":1,"charter":0})",
       "unknown state dances"},
      {R"({"format":1,"epoch":7,"leader":"a","address":"b","state":"leads","lease_ms":99999999999,"swap":1,"charter":0})",
       "its lease is too long"},
  };
  for (const auto& c : kCases) {
    const absl::StatusOr<Lead> decoded = DecodeLead(c.encoded);
    ASSERT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument) << c.encoded;
    EXPECT_THAT(decoded.status().message(), HasSubstr(c.why));
    EXPECT_LT(decoded.status().message().size(), 250u);
  }
}

TEST(LeadTest, EveryTruncationIsRefused) {
  const std::string whole = EncodeLead(kLead);
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(DecodeLead(whole.substr(0, n)).ok()) << n;
}

}  // namespace
}  // namespace ddprun
