#include "launcher/scheduler/scheduled_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Lt;

TEST(CandidatePortsTest, DifferAndAreNotEphemeral) {
  std::set<int> first;
  for (int job = 1; job <= 100; ++job) {
    const std::vector<int> ports = CandidatePorts(std::to_string(job) + ".0");
    EXPECT_EQ(std::set<int>(ports.begin(), ports.end()).size(), ports.size());
    for (const int port : ports) EXPECT_THAT(port, AllOf(Ge(20000), Lt(29000)));
    first.insert(ports[0]);
  }
  EXPECT_GT(first.size(), 95);
  // The nodes of a job may have different releases.
  EXPECT_THAT(CandidatePorts("12.0"), ElementsAre(25220, 26229, 27238, 28247, 20256, 21265, 22274, 23283));
}

}  // namespace
}  // namespace ddprun
