// In-place recovery with workers whose programs differ, or that count their steps wrongly: an error on every rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/fault/in_place_fixture.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

// How often `text` occurs in `all`.
int Count(const std::string& all, const std::string& text) {
  int n = 0;
  for (size_t at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++n;
  return n;
}

struct ModelCase {
  const char* name;
  std::string flag;  // of train; the joiner has `theirs`
  std::string ours, theirs;
  std::string error;
};
std::ostream& operator<<(std::ostream& out, const ModelCase& c) { return out << c.name; }

class InPlaceErrorsTest : public InPlaceTest, public testing::WithParamInterface<ModelCase> {};

TEST_P(InPlaceErrorsTest, AJoinerWithAnotherModel) {
  const ModelCase& c = GetParam();
  Start({.max_restarts = 1, .wrap = [&c](Args program) {
           std::erase_if(program, [&c](const std::string& arg) { return arg.starts_with(c.flag); });
           return Args{"/bin/sh", "-c",
                       "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec \"$0\" \"$@\" " + c.flag + c.ours +
                           "; else exec \"$0\" \"$@\" " + c.flag + c.theirs + "; fi"} +
                  program;
         }});
  ASSERT_EQ(kill(WorkersOf(0).at(1), SIGKILL), 0);
  EXPECT_EQ(agents_[0]->Wait(), ProcessEnd{.code = 1}) << Logs();
  EXPECT_EQ(Count(Logs(), "\ntrain: recover: the ranks differ: " + c.error), 3) << Logs();
  EXPECT_THAT(Logs(), HasSubstr("all 1 restarts are used up"));
  ExpectNothingIsLeft();
}

INSTANTIATE_TEST_SUITE_P(
    Joiners, InPlaceErrorsTest,
    testing::Values(
        ModelCase{"Shapes", "--width=", "48", "64",
                  "the shape of parameter token_embedding is [256, 48] on rank 0 and is [256, 64] on rank 1"},
        ModelCase{"Layers", "--layers=", "2", "3", "the number of parameters is "},
        ModelCase{"Optimizer", "--optimizer=", "adamw", "sgd",
                  "the optimizer is adamw on rank 0 and is sgd on rank 1"}),
    [](const auto& info) { return info.param.name; });

// A survivor says that it has three steps more than it has.
TEST(InPlaceStepsTest, ASurvivorThatCountsWrongly) {
  const auto agent = StartAgent({"--standalone", "--no-python", "--nproc-per-node=3", "--max-restarts=1"},
                                {TestFile("tests/fault/testing/miscounting")});
  const std::vector<std::string> pid = agent->AwaitOut("pid of local rank 1: ");
  ASSERT_THAT(pid, testing::SizeIs(1)) << agent->err();
  ASSERT_EQ(kill(std::stoi(pid[0].substr(pid[0].rfind(' '))), SIGKILL), 0);
  EXPECT_EQ(agent->Wait(), ProcessEnd{.code = 1}) << agent->err();
  EXPECT_EQ(Count(agent->err(),
                  "\nDATA_LOSS: recover: the steps of the survivors of round 0 cannot be reconciled: rank "),
            3)
      << agent->err();
}

}  // namespace
}  // namespace ddprun
