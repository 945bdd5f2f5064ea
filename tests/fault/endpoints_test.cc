// Tests endpoints with a link-local address, or with a name that cannot be resolved.
#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

class EndpointsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = Hosts::WhyNot(); !why.empty()) GTEST_SKIP() << why;
  }
};

// A link-local address needs an interface, which follows a '%'. The test names the interface ab0, because
// gRPC would decode "%ab" in an unescaped URI as the byte 0xab.
TEST_F(EndpointsTest, ALinkLocalAddressWithItsInterface) {
  HostJob job(2, {"--nnodes=2"}, {WorkerPath(), "--exit=0"});
  for (const int host : {0, 1}) {
    const auto ip = [&](const Args& args) { job.hosts().Run(host, Args{"/usr/sbin/ip"} + args); };
    ip({"link", "set", "eth0", "down"});
    ip({"link", "set", "eth0", "name", "ab0", "up"});
    ip({"address", "add", "fe80::a" + std::to_string(host) + "/64", "dev", "ab0", "nodad"});
  }
  for (const int host : {0, 1}) job.Start(host, {"--rdzv-endpoint=[fe80::a0%ab0]:29400"});
  for (const int host : {0, 1}) job.ExpectEnd(host, ProcessEnd{.code = 0});
}

// The resolver library retries for 10 s or longer. The agent waits only until its read timeout expires.
TEST_F(EndpointsTest, ANameServerThatDoesNotAnswer) {
  HostJob job(2, {"--nnodes=2", "--rdzv-conf=read_timeout=1,is_host=0"}, {WorkerPath(), "--exit=0"});
  job.hosts().LoseNames(1);
  const auto lookup = job.hosts().Start(1, {"/usr/bin/getent", "ahostsv4", "node0"});
  const TimePoint begin = std::chrono::steady_clock::now();
  Process& agent = job.Start(1);
  EXPECT_EQ(agent.Wait(), ProcessEnd{.code = 1});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(6));
  EXPECT_EQ(lookup->Wait(milliseconds(0)), std::nullopt) << "the fault did not fire";
  EXPECT_THAT(agent.err(), HasSubstr("node0 does not resolve (the name server has not answered)"));
  EXPECT_THAT(agent.err(), HasSubstr("tried for 1 s"));
}

}  // namespace
}  // namespace ddprun
