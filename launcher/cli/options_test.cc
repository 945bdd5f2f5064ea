#include "launcher/cli/options.h"

#include <map>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/cli/option_help.h"
#include "launcher/cli/option_table.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Texts = std::map<std::string, std::string>;

absl::StatusOr<Options> Parse(const std::vector<std::string>& args, const Texts& env = {},
                              const Texts& files = {}) {
  return ParseOptions(
      args,
      [&](absl::string_view name) -> std::optional<std::string> {
        const auto it = env.find(std::string(name));
        if (it == env.end()) return std::nullopt;
        return it->second;
      },
      [&](const std::string& path) -> absl::StatusOr<std::string> {
        const auto it = files.find(path);
        if (it == files.end()) return absl::NotFoundError("no such file");
        return it->second;
      });
}

TEST(OptionsTest, AcceptsEverySpellingOfAnOption) {
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

TEST(OptionsTest, AnExactNameWinsOverAPrefixMatch) {
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

TEST(OptionsTest, CommandLineOverridesTheEnvironment) {
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
  EXPECT_FALSE(options->IsSet("store-only")) << "PET_STORE_ONLY must have no effect";
  EXPECT_FALSE(options->IsGiven("rdzv-id"));
  EXPECT_EQ(options->Get("rdzv-id"), "none");
}

TEST(OptionsTest, AcceptsAnEmptyValue) {
  const auto options = Parse({"--rdzv-endpoint=", "--role=", "x"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->IsGiven("rdzv-endpoint"));
  EXPECT_EQ(options->Get("role"), "");
}

TEST(OptionsTest, APrefixMeansTheSameAsInTorchrun) {
  const auto options = Parse({"--max-rest=2", "--node=1", "--max-restarts-w=4", "x"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->Get("max-restarts"), "2");
  EXPECT_EQ(options->Get("node-rank"), "1");
  EXPECT_EQ(options->Get("max-restarts-without-progress"), "4");
}

TEST(OptionsTest, ErrorsNameTheInput) {
  const struct {
    std::vector<std::string> args;
    const char* words;
  } kBad[] = {
      {{"--nonodes=2"}, "unknown option --nonodes. Did you mean --nnodes?"},
      {{"--nproc_per_nod3", "2"}, "Did you mean --nproc-per-node?"},
      {{"--max-restart5=2"}, "Did you mean --max-restarts?"},
      {{"--nondes=2"}, "Did you mean --nnodes?"},
      {{"--completely-different"}, "unknown option --completely-different."},
      {{"--rdzv=x"}, "--rdzv can mean --rdzv-backend or --rdzv-endpoint or --rdzv-id or --rdzv-conf"},
      {{"--master", "x"}, "--master-addr or --master-port"},
      {{"--=3"}, "unknown option --."},
      {{"--nprocs=2"}, "unknown option --nprocs. Did you mean --nproc-per-node?"},
      {{"--shutdown_time_out=2"}, "Did you mean --shutdown-timeout?"},
      {{"-x"}, "unknown option -x"},
      {{"-mx", "y"}, "unknown option -x in -mx"},
      {{"-nnodes=2"}, "unknown option -n in -nnodes=2. Did you mean --nnodes?"},
      {{"-nproc_per_node", "2"}, "unknown option -n in -nproc_per_node. Did you mean --nproc-per-node?"},
      {{"-module", "x"}, "unknown option -o in -module. Did you mean --module?"},
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
  EXPECT_THAT(std::string(Parse({"--rdzvs=1"}).status().message()), Not(HasSubstr("Did you mean")))
      << "no name must be suggested if several options have the prefix";
  const auto flag = Parse({"x"}, {{"PET_STANDALONE", "yes"}});
  EXPECT_THAT(std::string(flag.status().message()), HasSubstr("PET_STANDALONE=yes: expected a whole number"));
}

TEST(OptionsTest, AcceptsLettersJoinedInOneArgument) {
  const auto options = Parse({"-mr3", "-t=1", "x"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->IsSet("module"));
  EXPECT_EQ(options->Get("redirects"), "3");
  EXPECT_EQ(options->Get("tee"), "1");
}

TEST(OptionsTest, AValueMayBeginWithAHyphenIfItCannotBeAnOption) {
  EXPECT_EQ(Parse({"--log-line-prefix-template", "- ${rank} ", "x"})->Get("log-line-prefix-template"),
            "- ${rank} ");
  EXPECT_EQ(Parse({"--role", "-.5", "x"})->Get("role"), "-.5");
  EXPECT_EQ(Parse({"--role", "-", "x"})->Get("role"), "-");
  EXPECT_EQ(Parse({"--role", "--no such=option", "x"})->Get("role"), "--no such=option");
  for (const char* option : {"-x", "-r 3", "--role=a b", "--", "-1e5", "-.", "-5-"}) {
    EXPECT_FALSE(Parse({"--role", option, "x"}).ok()) << option;
  }
}

TEST(OptionsTest, AVariableOverridesAFlagInTheFile) {
  const Texts files = {{"f", "standalone: yes\nmodule: on\nno-python: false\n"}};
  const auto options = Parse({"--config=f", "x"}, {{"PET_STANDALONE", "0"}}, files);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->IsSet("standalone"));
  EXPECT_TRUE(options->IsSet("module"));
  EXPECT_FALSE(options->IsSet("no-python"));
  EXPECT_EQ(options->Quote("module"), "f:2: module=1");
}

TEST(OptionsTest, FindsEveryOptionByNameAndLetter) {
  for (const OptionSpec& spec : OptionTable()) {
    ASSERT_TRUE(FindOption(spec.name).ok()) << spec.name;
    EXPECT_EQ(*FindOption(spec.name), &spec) << "declared twice";
    EXPECT_EQ(FindOption(spec.letter), spec.letter == 0 ? nullptr : &spec);
  }
  EXPECT_EQ(FindOption('\0'), nullptr);
}

TEST(OptionHelpTest, ListsEveryOptionOnce) {
  const std::string help = HelpText();
  for (const OptionSpec& spec : OptionTable()) {
    const std::string shown =
        absl::StrCat("--", spec.name, spec.is_flag() ? " " : absl::StrCat(" ", spec.value));
    size_t times = 0;
    for (const absl::string_view line : absl::StrSplit(help, '\n')) {
      if (line.size() > 6 && line[0] == ' ' && line.substr(6, shown.size()) == shown) ++times;
    }
    EXPECT_EQ(times, 1) << shown;
  }
  EXPECT_THAT(help, HasSubstr("\nRendezvous:\n"));
  EXPECT_THAT(help, HasSubstr("[1:1]\n"));
  EXPECT_THAT(help, HasSubstr("\nExamples:\n"));
  EXPECT_THAT(help, HasSubstr("the scheduler should requeue it"));
}

TEST(OptionHelpTest, ExamplesAreCommandLines) {
  const std::string help = HelpText();
  int examples = 0;
  for (absl::string_view line : absl::StrSplit(help.substr(help.find("\nExamples:")), '\n')) {
    if (!absl::ConsumePrefix(&line, "      ddprun ")) continue;
    ++examples;
    EXPECT_TRUE(Parse(absl::StrSplit(line, ' '), {}, {{"job.yaml", "program: train.py"}}).ok()) << line;
  }
  EXPECT_GE(examples, 5);
}

TEST(OptionHelpTest, FitsIn100Columns) {
  for (const absl::string_view line : absl::StrSplit(HelpText(), '\n')) {
    EXPECT_LE(line.size(), 100) << line;
    EXPECT_FALSE(absl::EndsWith(line, " ")) << line;
  }
}

}  // namespace
}  // namespace ddprun
