// Tests that the faults of Hosts take effect, that all processes of a host end together, and that Hosts::Left
// finds what is left on a host.
#include "tests/fault/testing/hosts.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"

namespace ddprun {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class HostsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = Hosts::WhyNot(); !why.empty()) GTEST_SKIP() << why;
  }

  // Whether the server on `to` answers a client on `from` within `seconds`.
  static bool Reaches(const Hosts& hosts, int from, int to, const Process& server, int seconds = 10) {
    const std::string port = server.out().substr(0, server.out().find('\n'));
    return hosts
               .Start(from, {"/usr/bin/timeout", std::to_string(seconds), "/bin/bash", "-c",
                             "exec 3<>/dev/tcp/" + hosts.name(to) + "/" + port +
                                 " && printf 'GET /status HTTP/1.0\\r\\n\\r\\n' >&3 && read -u 3"})
               ->Wait() == ProcessEnd{.code = 0};
  }
  static std::unique_ptr<Process> StartServer(const Hosts& hosts, int host) {
    auto server = hosts.Start(host, {DdprunPath(), "--store-only", "--host=0.0.0.0"});
    EXPECT_THAT(server->AwaitOut(""), SizeIs(1)) << server->err();
    return server;
  }
};

TEST_F(HostsTest, HostsAreIsolated) {
  const Hosts hosts(2);
  const auto name = hosts.Start(1, {"/bin/hostname"});
  EXPECT_EQ(name->Wait(), ProcessEnd{.code = 0});
  EXPECT_EQ(name->out(), "node1\n");
  const auto files = hosts.Start(0, {"/bin/ls", "/dev/shm"});
  EXPECT_EQ(files->Wait(), ProcessEnd{.code = 0});
  EXPECT_EQ(files->out(), "");
}

TEST_F(HostsTest, ACutCableIsHealed) {
  Hosts hosts(2);
  const auto server = StartServer(hosts, 1);
  EXPECT_TRUE(Reaches(hosts, 0, 1, *server));
  hosts.Cut(1);
  EXPECT_FALSE(Reaches(hosts, 0, 1, *server, 1));
  EXPECT_TRUE(Reaches(hosts, 1, 1, *server));
  hosts.Heal(1);
  EXPECT_TRUE(Reaches(hosts, 0, 1, *server));
}

TEST_F(HostsTest, PacketsAreDroppedInOneDirection) {
  Hosts hosts(3);
  const auto server = StartServer(hosts, 1);
  hosts.DropPackets(1, 0);
  EXPECT_FALSE(Reaches(hosts, 0, 1, *server, 1));
  EXPECT_TRUE(Reaches(hosts, 2, 1, *server));
  EXPECT_GE(hosts.Dropped(1), 1);
  hosts.PassPackets(1, 0);
  EXPECT_TRUE(Reaches(hosts, 0, 1, *server));
  hosts.Lossy(1, 1.0);
  EXPECT_FALSE(Reaches(hosts, 0, 1, *server, 1));
}

TEST_F(HostsTest, TheNameServerStopsAnswering) {
  Hosts hosts(2);
  const auto server = StartServer(hosts, 1);
  EXPECT_EQ(hosts.Start(0, {"/usr/bin/getent", "ahostsv4", "node1"})->Wait(), ProcessEnd{.code = 0});
  hosts.LoseNames(0);
  const auto lookup = hosts.Start(0, {"/usr/bin/getent", "ahostsv4", "node1"});
  EXPECT_EQ(lookup->Wait(milliseconds(200)), std::nullopt);  // The lookup blocks.
  EXPECT_TRUE(hosts.Start(0, {"/usr/bin/getent", "ahostsv4", "node0"})->Wait(seconds(5)));
}

TEST_F(HostsTest, AllProcessesOfAHostEndTogether) {
  Hosts hosts(2);
  const auto program = hosts.Start(0, {WorkerPath(), "--family", "--stubborn"});
  ASSERT_THAT(program->AwaitOut("ready"), SizeIs(1));
  std::vector<pid_t> all = hosts.Find(0, "worker");
  ASSERT_THAT(all, SizeIs(3));
  ASSERT_THAT(hosts.Find(0, "exe"), SizeIs(1));  // the daemon, which executed /proc/self/exe
  all.push_back(hosts.Find(0, "exe")[0]);
  hosts.PowerOff(0);
  EXPECT_EQ(program->Wait(), ProcessEnd{.signal = SIGKILL});
  for (const pid_t pid : all) EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(HostsTest, LeftoversAreFound) {
  Hosts hosts(1);
  EXPECT_THAT(hosts.Left(0), IsEmpty());
  const auto server = StartServer(hosts, 0);
  hosts.Run(0, {"/usr/bin/touch", "/dev/shm/forgotten"});
  const std::vector<std::string> left = hosts.Left(0, Duration::zero());
  EXPECT_THAT(left, Contains(HasSubstr("(ddprun)")));
  EXPECT_THAT(left, Contains(HasSubstr("port ")));
  EXPECT_THAT(left, Contains(HasSubstr("file /dev/shm/forgotten")));
}

}  // namespace
}  // namespace ddprun
