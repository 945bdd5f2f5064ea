#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "launcher/config/launch_config.h"
#include "launcher/config/testing/machine.h"
#include "launcher/hosts/start_message.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<HostSlots> kHosts = {{"me@node1", "node1", 8}, {"node2.x", "node2.x", 0}};

HostsConfig Start(std::vector<std::string> args) {
  args.emplace_back("/bin/true");
  const auto command = Machine().Parse(args);
  EXPECT_TRUE(command.ok()) << command.status();
  if (!command.ok() || !std::holds_alternative<HostsConfig>(*command)) {
    ADD_FAILURE() << "the command starts no hosts";
    return {};
  }
  return std::get<HostsConfig>(*command);
}

// The configuration of an agent that the starter of kHosts has started.
LaunchConfig OfAgent(int node, std::vector<std::string> args, Machine machine = {}) {
  machine.from_starter = JobOfHosts(kHosts, node, "id");
  args.insert(args.begin(), "--hosts=me@node1:8,node2.x");
  return machine.Launch(args);
}

TEST(HostsOptionsTest, TheStarterReadsHostsAndSsh) {
  const HostsConfig config = Start({"--hosts=me@node1:8,node2.x", "--ssh-command=ssh -F 'a b'", "--role=r"});
  EXPECT_EQ(config.hosts, kHosts);
  EXPECT_THAT(config.ssh, ElementsAre("ssh", "-F", "a b"));
  EXPECT_EQ(config.run_id, "uuid");
  EXPECT_EQ(config.job.min_nodes, 2);
  EXPECT_EQ(config.job.role, "r");
  EXPECT_THAT(Start({"--hosts=node1"}).ssh, ElementsAre("ssh"));
  EXPECT_EQ(Start({"--hosts=node1,node2", "--nnodes=1:4"}).job.min_nodes, 1);
}

TEST(HostsOptionsTest, TheProgramNeedNotExistHere) {
  const auto command = Machine().Parse({"--hosts=node1", "/nonexistent/train.py"});
  EXPECT_TRUE(command.ok()) << command.status();
}

TEST(HostsOptionsTest, AgentsMeetAtTheFirstHost) {
  LaunchConfig config = OfAgent(0, {});
  EXPECT_EQ(config.max_nodes, 2);
  EXPECT_EQ(config.num_local_workers, 8);
  EXPECT_EQ(config.hosting, Hosting::kHere);
  EXPECT_EQ(config.backend, Backend::kC10d);
  EXPECT_EQ(config.run_id, "id");
  EXPECT_EQ(config.endpoint.host, "node1");
  EXPECT_EQ(config.host_name, "node1");
  EXPECT_EQ(config.candidate_ports.size(), 8);
  EXPECT_THAT(config.expected_hosts, ElementsAre("node1", "node2"));
  EXPECT_THAT(config.from_scheduler, Contains("--nnodes=2 (--hosts)"));
  config = OfAgent(1, {"--nproc-per-node=3", "--rdzv-id=mine"});
  EXPECT_EQ(config.num_local_workers, 3);
  EXPECT_EQ(config.hosting, Hosting::kElsewhere);
  EXPECT_EQ(config.node_rank, 1);
  EXPECT_EQ(config.run_id, "mine");
}

TEST(HostsOptionsTest, AGivenEndpointReplacesTheCandidates) {
  const LaunchConfig config = OfAgent(1, {"--rdzv-endpoint=node1:25000"});
  EXPECT_EQ(config.endpoint.port, 25000);
  EXPECT_EQ(config.hosting, Hosting::kByAddress);
  EXPECT_EQ(config.node_rank, 1);
  EXPECT_THAT(config.candidate_ports, IsEmpty());
}

TEST(HostsOptionsTest, SlurmDoesNotMatter) {
  Machine machine;
  machine.env = {{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_NODES", "garbage"}};
  EXPECT_EQ(OfAgent(1, {}, machine).max_nodes, 2);
}

TEST(HostsOptionsTest, ErrorsNameTheOptionAndTheRemedy) {
  const struct {
    std::vector<std::string> args;
    std::string error;
  } kCases[] = {
      {{"--hosts="}, "--hosts=: expected HOST[:SLOTS],..."},
      {{"--hosts=a,a"}, "--hosts=a,a: \"a\": the host is given twice"},
      {{"--hosts=a:0"}, "--hosts=a:0: \"a:0\": expected a number of workers"},
      {{"--hosts=a,b", "--nnodes=3"}, "--hosts contradicts --nnodes=3: the list has 2 hosts; omit --nnodes"},
      {{"--hosts=a,b", "--nnodes=1"}, "--hosts contradicts --nnodes=1"},
      {{"--hosts=a,b", "--nnodes=3:4"}, "--hosts contradicts --nnodes=3:4"},
      {{"--hosts=a", "--node-rank=0"}, "--hosts contradicts --node-rank=0: "},
      {{"--hosts=a", "--standalone"}, "--hosts contradicts --standalone"},
      {{"--hosts=a", "--master-port=1"}, "give --rdzv-endpoint=HOST:PORT to choose its port"},
      {{"--hosts=a", "--rdzv-backend=static"}, "--hosts uses c10d"},
      {{"--hosts=a", "--ssh-command=ssh '"}, "--ssh-command=ssh ': a ' is missing"},
      {{"--hosts=a", "--ssh-command= "}, "--ssh-command= : expected a command"},
      {{"--ssh-command=ssh"}, "--ssh-command=ssh can be used only with --hosts"},
      {{"--hosts=a", "--max-restarts=x"}, "--max-restarts=x"},
      {{"--hosts=a", "--tee=x"}, "--tee=x"},
      {{"--from-starter"}, "unknown option --from-starter"},
  };
  for (const auto& c : kCases) {
    std::vector<std::string> args = c.args;
    args.emplace_back("/bin/true");
    EXPECT_THAT(Machine().UsageError(args), HasSubstr(c.error));
  }
  EXPECT_THAT(Machine().UsageError({"--hosts=a", "-"}), HasSubstr("cannot be read from stdin"));
  EXPECT_THAT(Machine().UsageError({"--hosts=a"}), AllOf(HasSubstr("PROGRAM"), HasSubstr("ddprun")));
}

}  // namespace
}  // namespace ddprun
