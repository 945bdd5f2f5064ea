// --rdzv-backend=etcd

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "launcher/config/launch_config.h"
#include "launcher/config/testing/machine.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Args(std::vector<std::string> more) {
  std::vector<std::string> args = {"--nnodes=1:4", "--rdzv-id=j"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(EtcdOptionsTest, EndpointsAreThoseOfEtcd) {
  for (const char* backend : {"--rdzv-backend=etcd", "--rdzv-backend=etcd-v2"}) {
    const LaunchConfig config = Machine().Launch(Args({backend, "--rdzv-endpoint=e1,e2:7,[fd00::3]:8"}));
    EXPECT_EQ(config.backend, Backend::kEtcd);
    EXPECT_THAT(config.etcd_endpoints,
                ElementsAre(Endpoint{"e1", 2379}, Endpoint{"e2", 7}, Endpoint{"fd00::3", 8}));
    EXPECT_EQ(config.min_nodes, 1);
    EXPECT_EQ(config.max_nodes, 4);
    EXPECT_EQ(config.run_id, "j");
    EXPECT_EQ(config.rdzv.etcd, EtcdConf());
    EXPECT_THAT(config.warnings, IsEmpty());
  }
  EXPECT_THAT(Machine().Launch(Args({"--rdzv-backend=etcd"})).etcd_endpoints,
              ElementsAre(Endpoint{"localhost", 2379}));
  EXPECT_EQ(Machine().Launch(Args({"--rdzv-backend=etcd", "--node-rank=2"})).node_rank, 2);
}

TEST(EtcdOptionsTest, StandaloneNeedsNoRegister) {
  EXPECT_EQ(Machine().Launch({"--standalone", "--rdzv-backend=etcd", "--rdzv-endpoint=e1"}).backend,
            Backend::kC10d);
}

TEST(EtcdOptionsTest, SettingsHaveTheNamesOfBothOfTorchrunsBackEnds) {
  const EtcdConf want{.prefix = "/p",
                      .tls = true,
                      .ca_cert = "/ca.pem",
                      .cert = "/c.pem",
                      .key = "/k.pem",
                      .user = "u",
                      .password_file = "/pw"};
  for (const char* tls :
       {"cacert=/ca.pem,cert=/c.pem,key=/k.pem", "ca_cert=/ca.pem,ssl_cert=/c.pem,ssl_cert_key=/k.pem"}) {
    const LaunchConfig config = Machine().Launch(Args(
        {"--rdzv-backend=etcd",
         std::string("--rdzv-conf=etcd_prefix=/p,protocol=https,user=u,password_file=/pw,read_timeout=7,") +
             tls}));
    EXPECT_EQ(config.rdzv.etcd, want);
    EXPECT_EQ(config.rdzv.read_timeout, seconds(7));
  }
  EXPECT_FALSE(Machine().Launch(Args({"--rdzv-backend=etcd", "--rdzv-conf=protocol=http"})).rdzv.etcd.tls);
}

TEST(EtcdOptionsTest, SettingsOfEtcdHaveNoEffectElsewhere) {
  const LaunchConfig config =
      Machine().Launch({"--nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-conf=protocol=ftp"});
  ASSERT_EQ(config.warnings.size(), 1u);
  EXPECT_THAT(config.warnings[0], HasSubstr("ignored, as it has no effect here"));
}

TEST(EtcdOptionsTest, UsageErrors) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"--rdzv-endpoint=e1,e2,e1:2379"}, "e1:2379 is there twice"},
      {{"--rdzv-endpoint=e1,,e2"}, "--rdzv-endpoint=e1,,e2"},
      {{"--rdzv-endpoint=e1:0"}, "addresses of etcd"},
      {{"--rdzv-endpoint=0.0.0.0"}, "addresses of etcd"},
      {{"--rdzv-endpoint=http://e1:2379"}, "--rdzv-endpoint=http://e1:2379"},
      {{"--rdzv-conf=protocol=ftp"}, "protocol=ftp: expected http or https"},
      {{"--rdzv-conf=protocol=https,cert=/c"}, "cert needs key, which is not given"},
      {{"--rdzv-conf=protocol=https,key=/k"}, "key needs cert, which is not given"},
      {{"--rdzv-conf=user=u"}, "user needs password_file"},
      {{"--rdzv-conf=password_file=/f"}, "password_file needs user"},
      {{"--rdzv-conf=cacert=/c"}, "protocol=https, which is not given"},
      {{"--rdzv-id=none"}, "--rdzv-id=none: expected a name of the job, a new one for each job"},
  };
  for (const auto& [args, want] : cases) {
    std::vector<std::string> all = args;
    all.push_back("--rdzv-backend=etcd");
    const absl::Status status = Machine().Parse(Args(all)).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << args[0];
    EXPECT_THAT(std::string(status.message()), HasSubstr(want));
  }
}

TEST(EtcdOptionsTest, ASchedulerSaysTheRest) {
  const Machine machine = InSlurm();
  const LaunchConfig config = machine.Launch({"--rdzv-backend=etcd", "--rdzv-endpoint=e1"});
  EXPECT_EQ(config.backend, Backend::kEtcd);
  EXPECT_EQ(config.run_id, "12.0");
  EXPECT_EQ(config.max_nodes, 2);
  EXPECT_EQ(config.node_rank, 1);
  EXPECT_EQ(config.admission, Admission::kExpected);
  EXPECT_THAT(config.candidate_ports, IsEmpty());
  EXPECT_EQ(machine.Launch({"--rdzv-backend=etcd", "--rdzv-id=j"}).admission, Admission::kOpen);
}

}  // namespace
}  // namespace ddprun
