#include "launcher/scheduler/slurm_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "launcher/scheduler/testing/environment.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What Slurm 22.05 sets for the task on the third of four nodes.
Environment Step() {
  return {{"SLURM_JOB_ID", "12"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_NODES", "4"},
          {"SLURM_STEP_NODELIST", "node[1-4]"},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x4)"},
          {"SLURM_NODEID", "2"},
          {"SLURMD_NODENAME", "node3"},
          {"SLURM_CPUS_ON_NODE", "2"}};
}

absl::StatusOr<std::optional<ScheduledJob>> Find(const Environment& environment) {
  return FindSlurmStep(GetEnvOf(environment));
}

ScheduledJob Found(const Environment& environment) { return Find(environment).value().value(); }

std::string ErrorOf(const std::string& variable, const std::string& value) {
  Environment environment = Step();
  environment[variable] = value;
  return std::string(Find(environment).status().message());
}

std::string ValueOf(const ScheduledJob& job, absl::string_view option) {
  for (const OfferedValue& value : job.size) {
    if (value.option == option) return value.value + " " + value.variable;
  }
  return "";
}

TEST(SlurmStepTest, HasTheNodesInTheirOrder) {
  const ScheduledJob job = Found(Step());
  EXPECT_EQ(job.scheduler, "Slurm");
  EXPECT_THAT(job.hosts, ElementsAre("node1", "node2", "node3", "node4"));
  EXPECT_THAT(job.first_host, ElementsAre("node1"));
  EXPECT_EQ(job.node, 2);
  EXPECT_EQ(job.id, "12.0");
  EXPECT_EQ(job.one_per_node, absl::OkStatus());
  EXPECT_EQ(ValueOf(job, "nnodes"), "4 SLURM_STEP_NUM_NODES");
  EXPECT_EQ(ValueOf(job, "nproc-per-node"), "") << "as torchrun: one worker";
}

TEST(SlurmStepTest, OneWorkerForEachGpuOfTheStep) {
  Environment environment = Step();
  environment["SLURM_GPUS_ON_NODE"] = "8";
  EXPECT_EQ(ValueOf(Found(environment), "nproc-per-node"), "8 SLURM_GPUS_ON_NODE");
  environment["SLURM_STEP_GPUS"] = "0,3";
  EXPECT_EQ(ValueOf(Found(environment), "nproc-per-node"), "2 SLURM_STEP_GPUS")
      << "the step may have fewer than the job";
  environment.erase("SLURM_STEP_GPUS");
  environment["SLURM_GPUS_ON_NODE"] = "0";
  EXPECT_EQ(ValueOf(Found(environment), "nproc-per-node"), "");
}

TEST(SlurmStepTest, ARequeuedJobIsAnotherJob) {
  Environment environment = Step();
  environment["SLURM_RESTART_COUNT"] = "1";
  EXPECT_EQ(Found(environment).id, "12.0r1");
}

TEST(SlurmStepTest, OnlySrunStartsTheNodesOfAJob) {
  for (const char* step : {"", "4294967290", "4294967291", "x"}) {
    Environment environment = Step();
    environment["SLURM_STEP_ID"] = step;
    EXPECT_EQ(*Find(environment), std::nullopt) << step;
  }
  Environment batch_script = Step();
  batch_script.erase("SLURM_STEP_ID");
  EXPECT_EQ(*Find(batch_script), std::nullopt);
  EXPECT_EQ(*Find({}), std::nullopt);
}

TEST(SlurmStepTest, SeveralTasksOnANodeCannotFormAJob) {
  for (const char* tasks : {"4(x2)", "1,4", "4(x1),1(x3)"}) {
    Environment environment = Step();
    environment["SLURM_STEP_TASKS_PER_NODE"] = tasks;
    EXPECT_THAT(
        std::string(Found(environment).one_per_node.message()),
        AllOf(HasSubstr(std::string("SLURM_STEP_TASKS_PER_NODE=") + tasks + ": srun starts ddprun 4 times"),
              HasSubstr("write srun --ntasks-per-node=1 ddprun --nproc-per-node=4")));
  }
}

TEST(SlurmStepTest, ErrorsNameTheVariable) {
  EXPECT_THAT(ErrorOf("SLURM_STEP_NODELIST", "node[1-"), HasSubstr("SLURM_STEP_NODELIST=node[1-: "));
  EXPECT_THAT(ErrorOf("SLURM_STEP_NODELIST", "node[1-3]"), HasSubstr("expected 4 hosts"));
  EXPECT_THAT(ErrorOf("SLURM_STEP_NODELIST", "other[1-4]"),
              HasSubstr("host 2 (SLURM_NODEID) is other3, but this is node3"));
  EXPECT_THAT(ErrorOf("SLURM_STEP_NUM_NODES", "0"),
              HasSubstr("SLURM_STEP_NUM_NODES=0: expected a number from 1"));
  EXPECT_THAT(ErrorOf("SLURM_NODEID", "4"), HasSubstr("SLURM_NODEID=4: expected a number from 0 to 3"));
  EXPECT_THAT(ErrorOf("SLURM_CPUS_ON_NODE", "0"),
              HasSubstr("SLURM_CPUS_ON_NODE=0: expected a number from 1"));
  for (const char* tasks : {"", "x", "0", "1(x4", "1,,1"}) {
    EXPECT_THAT(ErrorOf("SLURM_STEP_TASKS_PER_NODE", tasks), HasSubstr("expected numbers of tasks")) << tasks;
  }
}

}  // namespace
}  // namespace ddprun
