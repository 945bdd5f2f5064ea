// Where the nodes of a job meet: addresses that need care.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/host_job.h"

namespace ddprun {
namespace {

class EndpointsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = Hosts::WhyNot(); !why.empty()) GTEST_SKIP() << why;
  }
};

// Addresses that are the same on every link need the interface. Behind the '%' of this one gRPC's URIs would
// have the byte 0xab.
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

}  // namespace
}  // namespace ddprun
