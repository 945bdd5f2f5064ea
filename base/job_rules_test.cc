#include "base/job_rules.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

TEST(JobRulesTest, EachFieldRoundTrips) {
  std::set<absl::string_view> names;
  for (const JobRuleField& field : JobRuleFields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    JobRules rules;
    const int64_t other = field.get(rules) == field.min ? field.min + 1 : field.min;
    EXPECT_TRUE(SetRule(field.name, other, rules).ok()) << field.name;
    EXPECT_EQ(field.get(rules), other) << field.name;
    EXPECT_NE(rules, JobRules()) << field.name;
    EXPECT_EQ(FindDisagreement(JobRules(), rules), field.must_agree ? &field : nullptr) << field.name;
    EXPECT_FALSE(SetRule(field.name, field.min - 1, rules).ok()) << field.name;
    EXPECT_FALSE(SetRule(field.name, field.max + 1, rules).ok()) << field.name;
  }
}

TEST(JobRulesTest, DisagreementTextShowsTheOptions) {
  const auto text = [](const JobRules& job, const JobRules& node) -> std::string {
    const JobRuleField* const field = FindDisagreement(job, node);
    return field == nullptr ? "none" : DisagreementText(*field, job, node);
  };
  EXPECT_EQ(text({}, {}), "none");
  EXPECT_EQ(text({.min_nodes = 2, .max_nodes = 2}, {.min_nodes = 1, .max_nodes = 3}),
            "--nnodes=1:3, but the job has --nnodes=2:2");
  EXPECT_EQ(text({}, {.min_uptime = milliseconds(1500)}), "--min-uptime=1.5, but the job has --min-uptime=0");
  EXPECT_EQ(text({}, {.scale_up = ScaleUp::kNever}),
            "--scale-up=never, but the job has --scale-up=immediate");
  EXPECT_EQ(text({}, {.lease = seconds(7)}),
            "--rdzv-conf=lease_ms=7000, but the job has --rdzv-conf=lease_ms=5000");
}

TEST(JobRulesTest, InconsistentRulesAreErrors) {
  EXPECT_TRUE(CheckRules({}).ok());
  EXPECT_THAT(std::string(CheckRules({.min_nodes = 3, .max_nodes = 2}).message()),
              HasSubstr("max_nodes is 2"));
  EXPECT_THAT(std::string(CheckRules({.min_nodes = 2, .max_nodes = 5, .node_unit = 2}).message()),
              HasSubstr("max_nodes is 5, expected a multiple of the node unit 2"));
  JobRules rules;
  EXPECT_THAT(std::string(SetRule("nonsense", 1, rules).message()), HasSubstr("unknown rule nonsense"));
}

}  // namespace
}  // namespace ddprun
