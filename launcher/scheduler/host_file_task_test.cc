#include "launcher/scheduler/host_file_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "launcher/scheduler/testing/environment.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kHosts[] = "node1\nnode1\nnode2\nnode2\n";

ReadFile FileWith(const std::string& text) {
  return [text](const std::string& path) -> absl::StatusOr<std::string> {
    if (path != "/hosts") return absl::NotFoundError("No such file or directory");
    return text;
  };
}

// What Torque 2.4 sets for a task of pbsdsh on the second of two hosts, except the file, which the job script has copied.
Environment PbsTask() {
  return {{"PBS_JOBID", "1672.mgt1.example"},
          {"PBS_TASKNUM", "147"},
          {"PBS_NODENUM", "1"},
          {"PBS_VNODENUM", "2"},
          {"PBS_NODEFILE", "/hosts"}};
}

// What LSF sets for the first task of blaunch on the second of two hosts.
Environment LsfTask() {
  return {{"LSB_JOBID", "12"}, {"LSF_PM_TASKID", "3"}, {"LSB_DJOB_HOSTFILE", "/hosts"}};
}

absl::StatusOr<std::optional<ScheduledJob>> Pbs(const Environment& environment, const std::string& host,
                                                const std::string& hosts = kHosts) {
  return FindPbsTask(GetEnvOf(environment), FileWith(hosts), host);
}

absl::StatusOr<std::optional<ScheduledJob>> Lsf(const Environment& environment, const std::string& host,
                                                const std::string& hosts = kHosts) {
  return FindLsfTask(GetEnvOf(environment), FileWith(hosts), host);
}

std::string MessageOf(const absl::StatusOr<std::optional<ScheduledJob>>& found) {
  EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(found.status().message());
}

TEST(PbsTaskTest, HasTheDistinctHostsInTheirOrder) {
  const ScheduledJob job = Pbs(PbsTask(), "node2").value().value();
  EXPECT_EQ(job.scheduler, "PBS");
  EXPECT_THAT(job.hosts, ElementsAre("node1", "node2"));
  EXPECT_THAT(job.first_host, ElementsAre("node1"));
  EXPECT_EQ(job.node, 1);
  EXPECT_EQ(job.id, "1672.mgt1.example");
  ASSERT_EQ(job.size.size(), 1);
  EXPECT_EQ(job.size[0].value, "2");
  EXPECT_EQ(job.size[0].variable, "PBS_NODEFILE");
  EXPECT_EQ(job.one_per_node, absl::OkStatus());
  EXPECT_EQ(Pbs(PbsTask(), "n1", "n3 n1\tn2\r\n").value()->node, 1);
}

TEST(PbsTaskTest, TheScriptOfTheJobRunsOnTheFirstHostOnly) {
  Environment script = PbsTask();
  script["PBS_TASKNUM"] = "1";
  script["PBS_NODENUM"] = "0";
  EXPECT_EQ(*Pbs(script, "node1"), std::nullopt);
  script.erase("PBS_NODENUM");
  EXPECT_EQ(*Pbs(script, "node1"), std::nullopt);
  script["PBS_NODENUM"] = "1";
  EXPECT_EQ(Pbs(script, "node2").value()->node, 1) << "the first task on another host";
}

TEST(PbsTaskTest, OtherProcessesAreUnaffected) {
  EXPECT_EQ(*Pbs({}, "node1"), std::nullopt);
  EXPECT_EQ(*Pbs({{"PBS_JOBID", "1"}}, "node1"), std::nullopt);
  Environment slurm = PbsTask();
  slurm["SLURM_JOB_ID"] = "12";
  EXPECT_EQ(*Pbs(slurm, "node1"), std::nullopt);
  Environment ssh = PbsTask();
  ssh.erase("PBS_TASKNUM");
  EXPECT_EQ(Pbs(ssh, "node2").value()->node, 1) << "started over ssh, with the file in the environment";
}

TEST(PbsTaskTest, FindsThisHostByItsShortOrLongName) {
  EXPECT_EQ(Pbs(PbsTask(), "node2.example").value()->node, 1);
  EXPECT_EQ(Pbs(PbsTask(), "NODE2").value()->node, 1);
  EXPECT_EQ(Pbs(PbsTask(), "node2", "node1.example\nnode2.example\n").value()->node, 1);
  EXPECT_THAT(Pbs(PbsTask(), "node2", "node1.example\nnode2.example\n").value()->first_host,
              ElementsAre("node1.example", "node1"))
      << "only one of them may resolve";
  EXPECT_EQ(Pbs(PbsTask(), "n.b", "n.a\nn.b\n").value()->node, 1) << "the full name takes precedence";
  EXPECT_THAT(MessageOf(Pbs(PbsTask(), "n", "n.a\nn.b\n")),
              HasSubstr("does not contain this host, n, but n.a"));
}

TEST(PbsTaskTest, SeveralTasksOnAHostCannotFormAJob) {
  Environment second = PbsTask();
  second["PBS_VNODENUM"] = "3";
  EXPECT_THAT(std::string(Pbs(second, "node2").value()->one_per_node.message()),
              AllOf(StartsWith("PBS_VNODENUM=3: PBS starts ddprun more than once on node2"),
                    HasSubstr("write pbsdsh -u")));
  second["PBS_VNODENUM"] = "1";
  EXPECT_EQ(Pbs(second, "node2").value()->one_per_node, absl::OkStatus()) << "the line of another host";
}

TEST(PbsTaskTest, ErrorsNameTheFileAndTheRemedy) {
  EXPECT_THAT(
      MessageOf(Pbs(PbsTask(), "node7", "a b c d e f")),
      AllOf(StartsWith("PBS_NODEFILE=/hosts: the file does not contain this host, node7, but a, b, c, d "
                       "and 2 more"),
            HasSubstr("--rdzv-endpoint")));
  Environment environment = PbsTask();
  environment["PBS_NODEFILE"] = "/var/spool/torque/aux/1672";
  EXPECT_THAT(
      MessageOf(Pbs(environment, "node2")),
      AllOf(StartsWith("PBS_NODEFILE=/var/spool/torque/aux/1672: No such file or directory: PBS writes"),
            HasSubstr("pbsdsh -- env PBS_NODEFILE=COPY ddprun")));
  environment.erase("PBS_NODEFILE");
  EXPECT_THAT(MessageOf(Pbs(environment, "node2")),
              AllOf(StartsWith("PBS_NODEFILE=: expected"), HasSubstr("PBS_NODEFILE=COPY")));
  EXPECT_THAT(MessageOf(Pbs(PbsTask(), "node2", "\n")), HasSubstr("the file has no hosts"));
}

TEST(LsfTaskTest, HasTheDistinctHostsInTheirOrder) {
  const ScheduledJob job = Lsf(LsfTask(), "node2").value().value();
  EXPECT_EQ(job.scheduler, "LSF");
  EXPECT_THAT(job.hosts, ElementsAre("node1", "node2"));
  EXPECT_EQ(job.node, 1);
  EXPECT_EQ(job.id, "12");
  EXPECT_EQ(job.hosts_variable, "LSB_DJOB_HOSTFILE");
  EXPECT_EQ(job.one_per_node, absl::OkStatus());
}

TEST(LsfTaskTest, EachElementOfAnArrayIsAJob) {
  Environment element = LsfTask();
  element["LSB_JOBINDEX"] = "4";
  EXPECT_EQ(Lsf(element, "node2").value()->id, "12.4");
  element["LSB_JOBINDEX"] = "0";
  EXPECT_EQ(Lsf(element, "node2").value()->id, "12");
}

TEST(LsfTaskTest, OnlyBlaunchStartsTheNodesOfAJob) {
  Environment script = LsfTask();
  script.erase("LSF_PM_TASKID");
  EXPECT_EQ(*Lsf(script, "node1"), std::nullopt);
  EXPECT_EQ(*Lsf({{"LSF_PM_TASKID", "1"}}, "node1"), std::nullopt);
}

TEST(LsfTaskTest, ErrorsNameTheFileAndTheRemedy) {
  EXPECT_THAT(
      MessageOf(Lsf(LsfTask(), "x")),
      StartsWith("LSB_DJOB_HOSTFILE=/hosts: the file does not contain this host, x, but node1, node2: "));
  Environment environment = LsfTask();
  environment.erase("LSB_DJOB_HOSTFILE");
  EXPECT_THAT(MessageOf(Lsf(environment, "node2")), HasSubstr("--rdzv-endpoint"));
}

}  // namespace
}  // namespace ddprun
