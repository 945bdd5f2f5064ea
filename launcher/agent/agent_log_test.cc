#include "launcher/agent/agent_log.h"

#include <string>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

// Returns the text that `say` writes to a log with this level.
template <typename F>
std::string Written(absl::string_view level, F say) {
  AgentLog log("node1", level);
  std::string written;
  log.SendTo([&written](absl::string_view text) { written.append(text.data(), text.size()); });
  say(log);
  return written;
}

TEST(AgentLogTest, EachLineHasThePrefix) {
  EXPECT_EQ(Written("", [](const AgentLog& log) { log.Say("one\n  two\n"); }),
            "[ddprun node1] one\n[ddprun node1]   two\n");
}

// Names that come from other machines may contain any bytes.
TEST(AgentLogTest, RemovesTerminalControlSequences) {
  EXPECT_EQ(
      Written("", [](const AgentLog& log) { log.Say("waiting for \x1b[2J\x1b]0;title\anode\x1b[31m7\xff"); }),
      "[ddprun node1] waiting for node7?\n");
  EXPECT_EQ(Written("INFO",
                    [](const AgentLog& log) {
                      log.Event("lost", {{"node", "\x1b[2Jn"}});
                    }),
            "[ddprun node1] event=lost node=\"\\033[2Jn\"\n");
}

TEST(AgentLogTest, LevelsShowEventsAndDetails) {
  const auto all = [](const AgentLog& log) {
    log.Event("e", {});
    log.Detail("d");
  };
  EXPECT_EQ(Written("", all), "");
  EXPECT_EQ(Written("WARNING", all), "");
  EXPECT_EQ(Written("info", all), "[ddprun node1] event=e\n");
  EXPECT_EQ(Written("DEBUG", all), "[ddprun node1] event=e\n[ddprun node1] debug: d\n");
}

}  // namespace
}  // namespace ddprun
