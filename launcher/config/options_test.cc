#include "launcher/config/options.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<Options> Parse(const std::vector<std::string>& args,
                              const std::map<std::string, std::string>& env = {}) {
  return ParseOptions(args, [env](absl::string_view name) -> std::optional<std::string> {
    const auto it = env.find(std::string(name));
    if (it == env.end()) return std::nullopt;
    return it->second;
  });
}

TEST(OptionsTest, EveryWayToWriteAnOptionMeansTheSame) {
  const std::vector<std::string> kWays[] = {
      {"--nproc-per-node=4", "x"}, {"--nproc-per-node", "4", "x"},
      {"--nproc_per_node=4", "x"}, {"--nproc_per_node", "4", "x"},
      {"--nproc-per=4", "x"},      {"--nproc_p", "4", "x"},
      {"--np", "4", "x"},          {"--nproc-per-node=9", "--nproc_per_node=4", "x"}};
  for (const auto& args : kWays) {
    const auto options = Parse(args);
    ASSERT_TRUE(options.ok()) << args[0] << ": " << options.status();
    EXPECT_EQ(options->Get("nproc-per-node"), "4") << args[0];
    EXPECT_TRUE(options->IsGiven("nproc-per-node"));
    EXPECT_THAT(options->program(), ElementsAre("x"));
  }
  const std::vector<std::string> kShort[] = {{"-r", "3"}, {"-r3"}, {"-r=3"}, {"--redirects=3"}};
  for (const auto& args : kShort) EXPECT_EQ(Parse(args)->Get("redirects"), "3") << args[0];
}

TEST(OptionsTest, AnExactNameIsNoBeginningOfAnother) {
  EXPECT_EQ(Parse({"--role", "a"})->Get("role"), "a");
  EXPECT_EQ(Parse({"--port", "7"})->Get("port"), "7");
}

TEST(OptionsTest, OptionsEndAtTheProgram) {
  EXPECT_THAT(Parse({"--nnodes=2", "train.py", "--nnodes=3", "-m", "--", "x"})->program(),
              ElementsAre("train.py", "--nnodes=3", "-m", "--", "x"));
  EXPECT_THAT(Parse({"--", "--odd-name", "-x"})->program(), ElementsAre("--odd-name", "-x"));
  EXPECT_THAT(Parse({"-m", "--", "package.module", "--"})->program(), ElementsAre("package.module", "--"));
  EXPECT_THAT(Parse({"--role", "role", "nnodes"})->program(), ElementsAre("nnodes"));
  EXPECT_THAT(Parse({"--nnodes=2"})->program(), IsEmpty());
  EXPECT_THAT(Parse({"--node-rank", "-1", "x"})->program(), ElementsAre("x"));
}

TEST(OptionsTest, DefaultsComeFromTheEnvironmentAndTheCommandLineWins) {
  const auto options = Parse({"--nnodes=3", "x"}, {{"PET_NNODES", "2"},
                                                   {"PET_NPROC_PER_NODE", "8"},
                                                   {"PET_REDIRECTS", "1"},
                                                   {"PET_STANDALONE", "1"},
                                                   {"PET_MODULE", "0"},
                                                   {"PET_STORE_ONLY", "1"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->Get("nnodes"), "3");
  EXPECT_EQ(options->Quote("nnodes"), "--nnodes=3");
  EXPECT_EQ(options->Get("nproc-per-node"), "8");
  EXPECT_EQ(options->Quote("nproc-per-node"), "PET_NPROC_PER_NODE=8");
  EXPECT_EQ(options->Get("redirects"), "1");
  EXPECT_TRUE(options->IsSet("standalone"));
  EXPECT_FALSE(options->IsSet("module"));
  EXPECT_FALSE(options->IsSet("store-only")) << "has no variable";
  EXPECT_FALSE(options->IsGiven("rdzv-id"));
  EXPECT_EQ(options->Get("rdzv-id"), "none");
}

TEST(OptionsTest, AnEmptyValueIsAValue) {
  const auto options = Parse({"--rdzv-endpoint=", "--role=", "x"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->IsGiven("rdzv-endpoint"));
  EXPECT_EQ(options->Get("role"), "");
}

TEST(OptionsTest, ABeginningMeansWhatItMeansToTorchrun) {
  const auto options = Parse({"--max-rest=2", "--node=1", "--max-restarts-w=4", "x"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->Get("max-restarts"), "2");
  EXPECT_EQ(options->Get("node-rank"), "1");
  EXPECT_EQ(options->Get("max-restarts-without-progress"), "4");
}

TEST(OptionsTest, BadInputIsNamed) {
  const struct {
    std::vector<std::string> args;
    const char* words;
  } kBad[] = {
      {{"--nonodes=2"}, "unknown option --nonodes. Did you mean --nnodes?"},
      {{"--nproc_per_nod3", "2"}, "Did you mean --nproc-per-node?"},
      {{"--max-restart5=2"}, "Did you mean --max-restarts?"},
      {{"--completely-different"}, "unknown option --completely-different."},
      {{"--rdzv=x"}, "--rdzv can mean --rdzv-backend or --rdzv-endpoint or --rdzv-id or --rdzv-conf"},
      {{"--master", "x"}, "--master-addr or --master-port"},
      {{"-x"}, "unknown option -x"},
      {{"--nnodes"}, "--nnodes needs a value: --nnodes=N|MIN:MAX"},
      {{"--nnodes", "--standalone", "x"}, "--nnodes needs a value"},
      {{"-r"}, "-r needs a value"},
      {{"--standalone=1", "x"}, "--standalone takes no value"},
  };
  for (const auto& bad : kBad) {
    const auto options = Parse(bad.args);
    ASSERT_FALSE(options.ok()) << bad.args[0];
    EXPECT_EQ(options.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(options.status().message()), HasSubstr(bad.words));
  }
  EXPECT_THAT(std::string(Parse({"--completely-different"}).status().message()),
              Not(HasSubstr("Did you mean")));
  const auto flag = Parse({"x"}, {{"PET_STANDALONE", "yes"}});
  EXPECT_THAT(std::string(flag.status().message()), HasSubstr("PET_STANDALONE=yes: expected a whole number"));
}

TEST(OptionsTest, HelpListsEveryOptionOnce) {
  const std::string help = HelpText();
  for (const std::string& name : OptionNames()) {
    const std::string shown = absl::StrCat("--", name, " ");
    const size_t first = help.find(shown);
    EXPECT_NE(first, std::string::npos) << name;
    EXPECT_EQ(help.find(absl::StrCat("\n  ", shown), first + 1), std::string::npos) << name << " twice";
  }
  EXPECT_THAT(help, HasSubstr("How nodes meet:"));
  EXPECT_THAT(help, HasSubstr("(=1:1)"));
  EXPECT_THAT(help, HasSubstr("75 (requeue)"));
}

}  // namespace
}  // namespace ddprun
