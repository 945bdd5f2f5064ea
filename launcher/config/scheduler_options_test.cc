#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/job_rules.h"
#include "launcher/config/launch_config.h"
#include "launcher/config/testing/machine.h"

namespace ddprun {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SchedulerOptionsTest, AStepOfSlurmNeedsNoOptions) {
  Machine machine = InSlurm();
  LaunchConfig config = machine.Launch({});
  EXPECT_EQ(config.min_nodes, 2);
  EXPECT_EQ(config.max_nodes, 2);
  EXPECT_EQ(config.num_local_workers, 1);
  EXPECT_EQ(config.backend, Backend::kC10d);
  EXPECT_EQ(config.hosting, Hosting::kElsewhere);
  EXPECT_EQ(config.node_rank, 1);
  EXPECT_EQ(config.run_id, "12.0");
  EXPECT_EQ(config.endpoint.host, "node1");
  EXPECT_EQ(config.host_name, "node2");
  ASSERT_EQ(config.candidate_ports.size(), 8);
  EXPECT_EQ(config.endpoint.port, config.candidate_ports[0]);
  EXPECT_THAT(config.expected_hosts, ElementsAre("node1", "node2"));
  EXPECT_EQ(config.admission, Admission::kExpected);
  EXPECT_EQ(config.rules.quorum, Quorum::kNone) << "the job needs all of its nodes, and can get no other";
  EXPECT_THAT(config.from_scheduler, Contains("--nnodes=2 (SLURM_STEP_NUM_NODES)"));
  machine.env["SLURM_NODEID"] = "0";
  machine.env["SLURMD_NODENAME"] = "node1";
  machine.env["SLURM_STEP_GPUS"] = "0,1,2";
  config = machine.Launch({});
  EXPECT_EQ(config.hosting, Hosting::kHere);
  EXPECT_EQ(config.num_local_workers, 3);
}

TEST(SchedulerOptionsTest, AJobWhoseIdIsGivenAdmitsOtherAgents) {
  EXPECT_EQ(InSlurm().Launch({"--rdzv-id=gpt"}).admission, Admission::kOpen);
}

// Rank 1 of two, on another node than mpirun.
Machine InOpenMpi() {
  Machine machine;
  machine.env = {{"OMPI_COMM_WORLD_SIZE", "2"},
                 {"OMPI_COMM_WORLD_RANK", "1"},
                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                 {"OMPI_MCA_orte_hnp_uri", "7.0;tcp6://[fd00::1]:60629;tcp://10.0.0.1:59671"},
                 {"OMPI_MCA_orte_local_daemon_uri", "7.1;tcp://10.0.0.2:44003"}};
  return machine;
}

// A task of pbsdsh on the second of two hosts.
Machine InPbs() {
  Machine machine;
  machine.env = {{"PBS_JOBID", "16.mgt1"}, {"PBS_TASKNUM", "3"}, {"PBS_NODEFILE", "/hosts"}};
  machine.files = {{"/hosts", "node1.example\nnode1.example\nnode2.example\n"}};
  return machine;
}

TEST(SchedulerOptionsTest, ARankOfOpenMpiNeedsNoOptions) {
  Machine machine = InOpenMpi();
  const LaunchConfig config = machine.Launch({});
  EXPECT_EQ(config.scheduler, "Open MPI");
  EXPECT_EQ(config.max_nodes, 2);
  EXPECT_EQ(config.hosting, Hosting::kElsewhere);
  EXPECT_EQ(config.node_rank, 1);
  EXPECT_EQ(config.run_id, "7.60629");
  EXPECT_EQ(config.endpoint.host, "fd00::1");
  EXPECT_THAT(config.candidate_hosts, ElementsAre("10.0.0.1"));
  EXPECT_EQ(config.endpoint.port, config.candidate_ports[0]);
  EXPECT_EQ(config.host_name, "");
  EXPECT_THAT(config.from_scheduler, Contains("--node-rank=1 (OMPI_COMM_WORLD_RANK)"));
  machine.env["SLURM_JOB_ID"] = "12";
  machine.env["SLURM_STEP_ID"] = "0";
  EXPECT_EQ(machine.Launch({}).scheduler, "Open MPI") << "mpirun uses srun to start its daemons";
}

TEST(SchedulerOptionsTest, ATaskOfPbsNeedsNoOptions) {
  const LaunchConfig config = InPbs().Launch({});
  EXPECT_EQ(config.scheduler, "PBS");
  EXPECT_EQ(config.max_nodes, 2);
  EXPECT_EQ(config.hosting, Hosting::kElsewhere);
  EXPECT_EQ(config.node_rank, 1);
  EXPECT_EQ(config.run_id, "16.mgt1");
  EXPECT_EQ(config.endpoint.host, "node1.example");
  EXPECT_EQ(config.host_name, "node2");
  EXPECT_THAT(config.expected_hosts, ElementsAre("node1", "node2"));
  EXPECT_THAT(config.from_scheduler,
              ElementsAre("--nnodes=2 (PBS_NODEFILE)", "--rdzv-backend=c10d (PBS_NODEFILE)",
                          testing::StartsWith("--rdzv-endpoint=node1.example:"),
                          "--rdzv-id=16.mgt1 (PBS_JOBID)", "--node-rank=1 (PBS_NODEFILE)"));
  EXPECT_THAT(InPbs().Launch({"--nnodes=3:4"}).expected_hosts, ElementsAre("node1", "node2"));
}

TEST(SchedulerOptionsTest, OptionsReplaceTheValuesOfEveryStarter) {
  for (Machine machine : {InOpenMpi(), InPbs()}) {
    machine.env["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
    machine.env["OMPI_MCA_orte_hnp_uri"] = "";
    machine.files.clear();
    for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
             {"--standalone"}, {"--nnodes=1"}, {"--nnodes=2", "--rdzv-endpoint=h"}}) {
      const LaunchConfig config = machine.Launch(args);
      EXPECT_THAT(config.from_scheduler, IsEmpty()) << args[0];
      EXPECT_THAT(config.candidate_ports, IsEmpty()) << args[0];
    }
  }
}

TEST(SchedulerOptionsTest, ErrorsOfOpenMpiSayWhatToWrite) {
  Machine machine = InOpenMpi();
  machine.env["OMPI_MCA_orte_hnp_uri"] = "";
  EXPECT_THAT(machine.UsageError({"/bin/true"}), HasSubstr("ddprun --nnodes=2 --rdzv-endpoint=HOST"));
  machine.env["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_THAT(machine.UsageError({"/bin/true"}), HasSubstr("mpirun --map-by ppr:1:node"));
}

TEST(SchedulerOptionsTest, OptionsTakePrecedenceOverSlurm) {
  const LaunchConfig config = InSlurm().Launch({"--nnodes=1:3", "--nproc-per-node=5", "--rdzv-id=mine"});
  EXPECT_EQ(config.min_nodes, 1);
  EXPECT_EQ(config.max_nodes, 3);
  EXPECT_EQ(config.num_local_workers, 5);
  EXPECT_EQ(config.run_id, "mine");
  EXPECT_EQ(config.endpoint.host, "node1");
  EXPECT_EQ(config.candidate_ports, InSlurm().Launch({}).candidate_ports);
  EXPECT_THAT(InSlurm().UsageError({"--nnodes=1:1048577", "/bin/true"}), HasSubstr("--nnodes=1:1048577"));
}

TEST(SchedulerOptionsTest, ScriptsForTorchrunMeanTheSameInSlurm) {
  for (const std::vector<std::string>& args : std::vector<std::vector<std::string>>{
           {"--standalone"},
           {"--nnodes=1"},
           {"--nnodes=2", "--node-rank=1", "--master-addr=h", "--master-port=1234"},
           {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1234"}}) {
    Machine machine = InSlurm();
    machine.env["SLURM_STEP_GPUS"] = "0,1,2";
    machine.env["SLURM_STEP_TASKS_PER_NODE"] = "4(x2)";
    const LaunchConfig config = machine.Launch(args);
    EXPECT_THAT(config.from_scheduler, IsEmpty()) << args[0];
    EXPECT_THAT(config.candidate_ports, IsEmpty()) << args[0];
    EXPECT_EQ(config.num_local_workers, 1) << args[0];
  }
}

TEST(SchedulerOptionsTest, ErrorsInSlurmNameTheVariable) {
  Machine machine = InSlurm();
  machine.env["SLURM_STEP_TASKS_PER_NODE"] = "4(x2)";
  EXPECT_THAT(machine.UsageError({"/bin/true"}),
              HasSubstr("write srun --ntasks-per-node=1 ddprun --nproc-per-node=4"));
  machine = InSlurm();
  EXPECT_THAT(machine.UsageError({"--nnodes=2:1", "/bin/true"}), HasSubstr("--nnodes=2:1"));
  machine.env["SLURM_STEP_GPUS"] = std::string(40000, ',');
  EXPECT_THAT(machine.UsageError({"/bin/true"}),
              HasSubstr("SLURM_STEP_GPUS=40001: expected a number from 1"));
}

}  // namespace
}  // namespace ddprun
