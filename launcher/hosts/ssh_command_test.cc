#include "launcher/hosts/ssh_command.h"

#include <csignal>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/hosts/ssh_host_name.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const HostSlots kHost = {"me@node1", "node1", 8};

std::string FailureOf(const SshEnd& end) {
  return SshFailure(kHost, end, {"ssh", "-F", "my config"}, "/opt/ddprun");
}

TEST(SshCommandTest, OptionsOfTheUserComeFirst) {
  const std::string command =
      absl::StrJoin(SshCommand({"ssh", "-oConnectTimeout=60"}, kHost, "/opt/a b/ddprun"), " ");
  EXPECT_THAT(command, StartsWith("ssh -oConnectTimeout=60 -o BatchMode=yes -o ConnectTimeout=15 "));
  EXPECT_THAT(command, EndsWith(" me@node1 '/opt/a b/ddprun' --from-starter"));
}

TEST(SshCommandTest, FailuresNameTheHostAndTheRemedy) {
  EXPECT_THAT(
      FailureOf({.exit_code = 255, .last_line = "Host key verification failed."}),
      AllOf(HasSubstr("node1: ssh failed: Host key verification failed: "),
            HasSubstr("run `ssh -F 'my config' me@node1 true` once"), HasSubstr("ssh-keyscan node1")));
  EXPECT_THAT(FailureOf({.exit_code = 255, .last_line = "me@node1: Permission denied (publickey)."}),
              HasSubstr("ssh-copy-id me@node1"));
  EXPECT_THAT(FailureOf({.exit_code = 255,
                         .last_line = "ssh: Could not resolve hostname node1: Name or service not known"}),
              HasSubstr("check the name in --hosts"));
  EXPECT_THAT(
      FailureOf({.exit_code = 255, .last_line = "ssh: connect to host node1 port 22: Connection refused"}),
      AllOf(HasSubstr("Connection refused"), HasSubstr("me@node1 true` must work")));
  EXPECT_THAT(FailureOf({.exit_code = 127, .last_line = "sh: 1: /opt/ddprun: not found"}),
              HasSubstr("node1: /opt/ddprun does not exist there: sh: 1: /opt/ddprun: not found: install"));
  EXPECT_THAT(FailureOf({.exit_code = 126}), HasSubstr("node1: /opt/ddprun cannot be executed there: check"));
  EXPECT_THAT(FailureOf({.exit_code = 2, .last_line = "ddprun: error: x"}),
              HasSubstr("node1: ddprun did not start, exit code 2: ddprun: error: x"));
}

TEST(SshCommandTest, FailuresAfterTheStartAreOtherOnes) {
  EXPECT_EQ(FailureOf({.exit_code = 1, .started = true, .last_line = "x"}), "node1: ddprun exited with 1");
  EXPECT_EQ(FailureOf({.exit_code = 127, .started = true}), "node1: ddprun exited with 127");
  EXPECT_THAT(FailureOf({.exit_code = 255, .started = true, .last_line = "Connection reset"}),
              HasSubstr("node1: the connection was lost, or ddprun there was killed: Connection reset"));
  EXPECT_EQ(FailureOf({.signal = SIGKILL, .started = true}), "node1: ssh was killed by SIGKILL");
}

TEST(SshHostNameTest, IsALineOfTheConfiguration) {
  EXPECT_EQ(ParseSshHostName("user me\nhostname 10.0.0.1\nport 22\n"), "10.0.0.1");
  EXPECT_EQ(ParseSshHostName("hostkeyalias hostname\n"), "");
  EXPECT_EQ(ParseSshHostName(""), "");
}

}  // namespace
}  // namespace ddprun
