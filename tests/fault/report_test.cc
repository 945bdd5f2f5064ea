// Tests that every node prints the first cause of a job's failure, and writes it to its log directory.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr ProcessEnd kFailure{.code = 1};

class ReportTest : public HostFaultTest {
 protected:
  // Returns the concatenated contents of all files called `name` on the host.
  static std::string FilesOf(const Hosts& hosts, int host, const std::string& name) {
    std::string text;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(hosts.directory(host))) {
      if (entry.path().filename() != name) continue;
      std::ifstream file(entry.path());
      text.append(std::istreambuf_iterator<char>(file), {});
    }
    return text;
  }
};

TEST_F(ReportTest, EveryNodeReportsTheFirstCause) {
  Gate gate;
  HostJob job(3, {"--nnodes=3"}, {WorkerPath(), gate.flag(), "--fail-in-round=0", "--fail-rank=1"});
  FaultNow();
  for (const int host : {0, 1, 2}) {  // one after another, which determines the ranks
    job.Start(host);
    job.AwaitLogged(0, "event=node_joined");
  }
  for (const int host : {0, 1, 2}) {
    job.ExpectEnd(host, kFailure);
    const std::string file = FilesOf(job.hosts(), host, "failure_report.txt");
    const auto has_the_cause = AllOf(HasSubstr("rank 1"), HasSubstr("node1"), HasSubstr("exit code 3"),
                                     HasSubstr("the loss is not a number"), HasSubstr("--max-restarts=0"));
    EXPECT_THAT(file, has_the_cause) << host;
    EXPECT_THAT(job.agent(host).err(), has_the_cause) << host;
  }
}

TEST_F(ReportTest, EqualFailuresAreGrouped) {
  Gate gate;
  // --stubborn: the SIGTERM that follows the first failure must not end the other workers.
  HostJob job(2, {"--nnodes=2", "--nproc-per-node=4"},
              {WorkerPath(), gate.flag(), "--fail-in-round=0", "--stubborn"});
  FaultNow();
  for (const int host : {0, 1}) job.Start(host);
  // A worker that has not printed "ready" does not yet ignore signals.
  for (const int host : {0, 1}) ASSERT_THAT(job.agent(host).AwaitOut("ready rank=", 4), testing::SizeIs(4));
  gate.Open();
  for (const int host : {0, 1}) {
    job.ExpectEnd(host, kFailure);
    EXPECT_THAT(FilesOf(job.hosts(), host, "failure_report.txt"), HasSubstr(" failed the same way: "));
  }
}

}  // namespace
}  // namespace ddprun
