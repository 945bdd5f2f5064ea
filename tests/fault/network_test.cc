// Tests which addresses workers use on hosts that resolve their own name to a loopback address, and on hosts
// with several networks.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class NetworkTest : public TrainingTest {};

TEST_F(NetworkTest, HostsThatResolveTheirOwnNameToLoopbackTrainTogether) {
  StartTraining({.prepare = [this](const std::string&) {
    for (const int host : {0, 1}) hosts().ResolveOwnNameToLoopback(host);
    FaultNow();
  }});
  ExpectResult({0, 1});
}

// Runs PyTorch workers that do not use the SDK.
class GlooTest : public HostFaultTest {
 protected:
  static Args Torch() {
    return {"--no-python", "/usr/bin/python3", TestFile("tests/interop/torch_worker.py")};
  }
  static void ExpectSum(HostJob& job) {
    for (const int host : {0, 1}) {
      job.ExpectEnd(host, {.code = 0});
      EXPECT_THAT(job.agent(host).out(), HasSubstr("world_size=2 sum=3")) << "node" << host;
    }
  }
};

TEST_F(GlooTest, HostsThatResolveTheirOwnNameToLoopbackTrainTogether) {
  HostJob job(2, {"--nnodes=2"}, Torch());
  for (const int host : {0, 1}) job.hosts().ResolveOwnNameToLoopback(host);
  FaultNow();
  for (const int host : {0, 1}) job.Start(host);
  ExpectSum(job);
}

// Both agents run on one host, and the endpoint is its loopback address, so the loopback interface suffices.
TEST_F(GlooTest, AgentsWithALoopbackEndpointUseTheLoopbackInterface) {
  Hosts hosts(1);
  const Args agent =
      Args{DdprunPath(), "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:29400"} + Torch();
  const auto first = hosts.Start(0, agent), second = hosts.Start(0, agent);
  for (Process* each : {first.get(), second.get()}) {
    EXPECT_EQ(each->Wait(kPatience), ProcessEnd{.code = 0}) << each->err();
    EXPECT_THAT(each->out(), HasSubstr("world_size=2 sum=3"));
  }
}

// Runs workers that print the network variables that they get.
class WorkersNetworkTest : public HostFaultTest {
 protected:
  static Args PrintVariables() {
    return {"--no-python", "/bin/sh", "-c",
            "echo network $DDPRUN_NODE_ADDR $GLOO_SOCKET_IFNAME $MASTER_ADDR"};
  }
};

TEST_F(WorkersNetworkTest, AnInterfaceIsChosenByName) {
  HostJob job(2, {"--nnodes=2", "--local-addr=eth1"}, PrintVariables());
  job.hosts().AddNetwork();
  for (const int host : {0, 1}) job.Start(host);
  for (const int host : {0, 1}) job.ExpectEnd(host, {.code = 0});
  const auto line = [&job](int host, int master) {
    return "network " + job.hosts().SecondAddress(host) + " eth1 " + job.hosts().SecondAddress(master);
  };
  // The node that joins first has rank 0, whose address all get as MASTER_ADDR.
  const int master = job.agent(0).out().find(line(0, 0)) != std::string::npos ? 0 : 1;
  for (const int host : {0, 1}) EXPECT_THAT(job.agent(host).out(), HasSubstr(line(host, master)));
}

// The endpoint is in the second network, and no option selects an interface.
TEST_F(WorkersNetworkTest, TheCoordinatorsNodeUsesTheNetworkOfTheEndpoint) {
  HostJob job(2, {"--nnodes=2"}, PrintVariables());
  job.hosts().AddNetwork();
  job.hosts().ResolveOwnNameToLoopback(0);
  job.hosts().Name(1, job.hosts().SecondAddress(0), job.hosts().name(0));
  for (const int host : {0, 1}) job.Start(host);
  for (const int host : {0, 1}) {
    job.ExpectEnd(host, {.code = 0});
    EXPECT_THAT(job.agent(host).out(), HasSubstr("network " + job.hosts().SecondAddress(host) + " eth1 "));
  }
}

TEST_F(WorkersNetworkTest, VariablesSetByTheUserAreKept) {
  HostJob job(2, {"--nnodes=2"}, PrintVariables());
  for (const int host : {0, 1}) job.Start(host, {}, {{"GLOO_SOCKET_IFNAME", "mine"}});
  for (const int host : {0, 1}) {
    job.ExpectEnd(host, {.code = 0});
    EXPECT_THAT(job.agent(host).out(), HasSubstr("network " + job.hosts().address(host) + " mine "));
  }
}

TEST_F(WorkersNetworkTest, AnInterfaceWithoutAnAddressIsRefused) {
  HostJob job(1, {"--nnodes=1:2", "--local-addr=eth1"}, PrintVariables());
  job.hosts().AddNetwork();
  job.hosts().Run(0, {"/usr/sbin/ip", "address", "flush", "dev", "eth1"});
  job.hosts().Run(0, {"/usr/sbin/ip", "link", "set", "eth1", "down"});
  job.Start(0);
  job.ExpectEnd(0, {.code = 1});
  EXPECT_THAT(job.agent(0).err(), AllOf(HasSubstr("--local-addr=eth1: this network interface is down"),
                                        Not(HasSubstr("event=round_started"))));
}

}  // namespace
}  // namespace ddprun
