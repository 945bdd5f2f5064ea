// Tests the real programs under restrictions: an old kernel, a container that refuses system calls, or no
// /proc. A job of two workers fails once, is restarted, succeeds, and leaves nothing behind.
#include <memory>
#include <ostream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Restriction {
  std::string name;
  std::string what;  // argument of start_lacking
  std::string said;  // message that the agent must print; empty: none
};

void PrintTo(const Restriction& restriction, std::ostream* out) { *out << restriction.name; }

class RestrictedTest : public testing::TestWithParam<Restriction> {};

TEST_P(RestrictedTest, AJobIsRestartedAndNothingIsLeft) {
  AdoptOrphans();
  Gate gate;
  const auto agent = std::make_unique<Process>(
      Args{StartLackingPath(), GetParam().what, DdprunPath(), "--nproc-per-node=2", "--max-restarts=1",
           "--min-uptime=0", WorkerPath(), "--family", "--fail-in-round=0", gate.flag()});
  const std::vector<std::string> ready = agent->AwaitOut("ready ", 2);
  if (ready.empty() && agent->err().find("start_lacking: ") != std::string::npos)
    GTEST_SKIP() << agent->err();
  ASSERT_THAT(ready, SizeIs(2)) << agent->err();
  const Traces traces = TracesOf(agent->mark());
  gate.Open();
  EXPECT_THAT(agent->AwaitOut("round=1", 2), SizeIs(2)) << agent->err();
  EXPECT_EQ(agent->Wait(), ProcessEnd{.code = 0}) << agent->err();
  EXPECT_THAT(agent->err(), HasSubstr(GetParam().said));
  EXPECT_THAT(LeftOf(traces, agent->mark()), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    All, RestrictedTest,
    testing::Values(Restriction{"Linux4_18", "after=334", ""},
                    Restriction{"ContainerRefuses", "close_range,pidfd_open,pidfd_send_signal", ""},
                    Restriction{"NoProc", "proc", "/proc is not mounted, or not for this pid namespace"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ddprun
