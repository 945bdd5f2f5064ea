#include "launcher/hosts/shell_words.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ShellWordsTest, SplitsAsAShell) {
  EXPECT_THAT(*SplitShellWords("ssh -F config"), ElementsAre("ssh", "-F", "config"));
  EXPECT_THAT(*SplitShellWords(" \tssh\n -o 'A B'\"c d\"e\\ f '' "),
              ElementsAre("ssh", "-o", "A Bc de f", ""));
  EXPECT_THAT(*SplitShellWords(R"("a\"b\\c\d" '\')"), ElementsAre("a\"b\\c\\d", "\\"));
  EXPECT_THAT(*SplitShellWords("~/x $HOME *"), ElementsAre("~/x", "$HOME", "*"));
  EXPECT_THAT(*SplitShellWords("  "), IsEmpty());
}

TEST(ShellWordsTest, UnfinishedTextIsAnError) {
  for (const char* text : {"ssh '", "\"a", "a\\", "\"a\\"}) {
    EXPECT_EQ(SplitShellWords(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace ddprun
