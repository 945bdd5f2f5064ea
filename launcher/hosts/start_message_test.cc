#include "launcher/hosts/start_message.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/hosts/sent_environment.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

StartMessage Example() {
  return {.arguments = {"--hosts=a:2,b", "x y", "", "'\"$(z)\n", "\xff"},
          .directory = "/home/me/\xfe",
          .environment = {{"A", ""}, {"B", "=\n\xff"}},
          .hosts = {{"u@a", "a", 2}, {"b", "b", 0}},
          .node = 1,
          .run_id = "uuid"};
}

TEST(StartMessageTest, ArrivesAsItWasSent) {
  const std::string bytes = EncodeStart(Example());
  const auto length = StartLength(bytes.substr(0, kStartHeaderBytes));
  ASSERT_EQ(length.value_or(0), bytes.size() - kStartHeaderBytes);
  EXPECT_EQ(DecodeStart(bytes.substr(kStartHeaderBytes)).value(), Example());
}

TEST(StartMessageTest, AWrongHeaderIsAnError) {
  for (const std::string& header :
       {std::string(12, '\0'), std::string("ddprun2\n\0\0\0\1", 12), std::string()}) {
    EXPECT_THAT(std::string(StartLength(header).status().message()), HasSubstr("install the same release"));
  }
  EXPECT_THAT(std::string(StartLength("ddprun1\n\xff\xff\xff\xff").status().message()),
              HasSubstr("4294967295 bytes"));
}

TEST(StartMessageTest, WrongContentsAreErrors) {
  EXPECT_FALSE(DecodeStart("garbage").ok());
  EXPECT_FALSE(DecodeStart("").ok());
  for (const auto& spoil :
       {+[](StartMessage& m) { m.node = 2; }, +[](StartMessage& m) { m.node = -1; },
        +[](StartMessage& m) { m.hosts.clear(); }, +[](StartMessage& m) { m.directory += '\0'; },
        +[](StartMessage& m) { m.arguments[0] += '\0'; },
        +[](StartMessage& m) { m.environment[1].second += '\0'; }}) {
    StartMessage message = Example();
    spoil(message);
    EXPECT_FALSE(DecodeStart(EncodeStart(message).substr(kStartHeaderBytes)).ok());
  }
}

TEST(StartMessageTest, TheJobHasTheSlotsOfTheNode) {
  const ScheduledJob first = JobOfHosts(Example().hosts, 0, "uuid");
  EXPECT_EQ(first.scheduler, "--hosts");
  EXPECT_EQ(first.id, "uuid");
  EXPECT_THAT(first.hosts, ElementsAre("a", "b"));
  ASSERT_EQ(first.size.size(), 2);
  EXPECT_EQ(first.size[0].value, "2");
  EXPECT_EQ(first.size[1].value, "2");
  EXPECT_EQ(JobOfHosts(Example().hosts, 1, "uuid").size.size(), 1) << "no slots given";
}

TEST(SentEnvironmentTest, LeavesOutWhatDescribesTheStarter) {
  const char* const environment[] = {"PATH=/bin", "HOME=/root", "SLURM_JOB_ID=1", "SSH_AUTH_SOCK=/s",
                                     "A=b=c",     "EMPTY=",     "broken",         "=x",
                                     "HOMES=1",   "TERM=xterm", "PET_ROLE=r",     "BASH_FUNC_x%%=() { :; }",
                                     nullptr};
  EXPECT_THAT(SentEnvironment(environment),
              ElementsAre(Pair("PATH", "/bin"), Pair("A", "b=c"), Pair("EMPTY", ""), Pair("HOMES", "1"),
                          Pair("PET_ROLE", "r")));
}

}  // namespace
}  // namespace ddprun
