#include "launcher/cli/config_file.h"

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

ConfigFile Parse(absl::string_view text) {
  const absl::StatusOr<ConfigFile> file = ParseConfigFile(text, "job.yaml");
  EXPECT_TRUE(file.ok()) << file.status();
  return file.value_or(ConfigFile());
}

std::string Error(absl::string_view text) {
  const absl::StatusOr<ConfigFile> file = ParseConfigFile(text, "job.yaml");
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(file.status().message());
}

// Returns each value as "nnodes=2".
std::vector<std::string> Values(const ConfigFile& file) {
  std::vector<std::string> values;
  for (const ConfigFile::Value& value : file.values) {
    values.push_back(absl::StrCat(value.option, "=", value.text));
  }
  return values;
}

TEST(ConfigFileTest, ReadsOptionsInEitherSpelling) {
  const ConfigFile file = Parse(
      "# A job.\n"
      "nnodes: 1:4\n"
      "nproc_per_node: auto\n"
      "\n"
      "standalone: true\n"
      "module: No\n"
      "rdzv-id: 007\n"
      "log-line-prefix-template: '${rank}: '\n");
  EXPECT_THAT(Values(file), ElementsAre("nnodes=1:4", "nproc-per-node=auto", "standalone=1",
                                        "module=", "rdzv-id=007", "log-line-prefix-template=${rank}: "));
  EXPECT_EQ(file.values[1].source, "job.yaml:3: nproc_per_node");
  EXPECT_THAT(file.program, IsEmpty());
  EXPECT_THAT(file.env, IsEmpty());
}

TEST(ConfigFileTest, JoinsListsInTheFormThatTheOptionParses) {
  EXPECT_THAT(Values(Parse("local-ranks-filter: [0, 2]\n"
                           "signals-to-handle:\n"
                           "  - SIGTERM\n"
                           "  - SIGUSR1\n"
                           "duplicate-stdout-filters: [loss, \"a,b\"]\n"
                           "duplicate-stderr-filters: a,,b\n")),
              ElementsAre("local-ranks-filter=0,2", "signals-to-handle=SIGTERM,SIGUSR1",
                          "duplicate-stdout-filters=loss,a,,b", "duplicate-stderr-filters=a,,b"));
}

TEST(ConfigFileTest, ReadsProgramArgumentsAndEnvironment) {
  const ConfigFile file = Parse(
      "args: [--epochs, 3, \"\"]\n"
      "program: train.py\n"
      "env:\n"
      "  NCCL_DEBUG: INFO\n"
      "  EMPTY: \"\"\n");
  EXPECT_THAT(file.program, ElementsAre("train.py", "--epochs", "3", ""));
  EXPECT_THAT(file.env, ElementsAre(Pair("NCCL_DEBUG", "INFO"), Pair("EMPTY", "")));
}

TEST(ConfigFileTest, AcceptsAnEmptyFile) {
  for (const char* text : {"", "\n", "# nothing\n", "---\n", "{}\n"}) {
    EXPECT_THAT(Values(Parse(text)), IsEmpty()) << text;
  }
}

TEST(ConfigFileTest, ErrorsNameTheLine) {
  const struct {
    std::string text;
    const char* words;
  } kBad[] = {
      {"nnodes: 2\nnproc-per-nod: 8\n",
       "job.yaml:2: unknown name nproc-per-nod. Did you mean nproc-per-node?"},
      {"programm: x\n", "job.yaml:1: unknown name programm. Did you mean program?"},
      {"colour_of_the_logs: x\n", "job.yaml:1: unknown name colour_of_the_logs. Valid names are the options"},
      {"nnode: 2\n", "Did you mean nnodes?"},
      {"role: a\n\nrole: b\n", "job.yaml:3: role is given twice"},
      {"max-restarts: 1\nmax_restarts: 2\n",
       "job.yaml:2: max_restarts: already given as job.yaml:1: max-restarts"},
      {"help: true\n", "job.yaml:1: help cannot be given in a configuration file"},
      {"config: other.yaml\n", "config cannot be given in a configuration file"},
      {"store-only: true\n", "store-only cannot be given in a configuration file"},
      {"nnodes:\n", "job.yaml:1: nnodes has no value"},
      {"role: ~\n", "role has no value"},
      {"standalone: 1\n", "job.yaml:1: standalone: expected true or false"},
      {"standalone: [true]\n", "standalone: expected true or false"},
      {"role: [a]\n", "job.yaml:1: role: expected a string, as in role: NAME"},
      {"tee: {0: 1}\n", "tee: expected a string or a list of strings"},
      {"duplicate-stdout-filters:\n- a\n- \"\"\n",
       "job.yaml:3: an entry of duplicate-stdout-filters is empty"},
      {"duplicate-stdout-filters: [\",a\"]\n", "begins with a comma"},
      {"program: [train.py, x]\n", "job.yaml:1: program: expected one string"},
      {"program: \"\"\n", "program: expected one string"},
      {"args: [x]\n", "job.yaml:1: args requires a program"},
      {"program: x\nargs: y\n", "job.yaml:2: args: expected a list of strings"},
      {"env: [A]\n", "env: expected names and strings"},
      {"env: {A=B: c}\n", "job.yaml:1: \"A=B\" is not a valid variable name"},
      {"env:\n  A: 1\n  A: 2\n", "job.yaml:3: A is given twice in env"},
      {"env: {A: }\n", "write \"\" for an empty string"},
      {"env: {A: [b]}\n", "job.yaml:1: nested too deeply"},
      {"just a text\n", "job.yaml:1: expected lines of NAME: VALUE"},
      {"- a\n", "job.yaml:1: expected lines of NAME: VALUE"},
      {"nnodes: 2\nrole: \"a\n", "job.yaml:2: invalid YAML: illegal EOF in scalar"},
      {"role: 'a", "job.yaml:1: invalid YAML: illegal EOF in scalar"},
      {"args: [a\nb: c\n", "job.yaml:"},
      {"a: b: c\n", "job.yaml:1: invalid YAML: illegal map value"},
      {"role: x\n---\nrole: y\n", "a second document begins"},
      {"role: &r x\n", "job.yaml:1: anchors (&name) are not supported"},
      {"role: !!str x\n", "job.yaml:1: tags (!name) are not supported"},
      {"role: *r\n", "job.yaml:1: invalid YAML"},
      {"? [a]\n: b\n", "job.yaml:1: expected a name before the colon"},
      {"role: \"a\\0b\"\n", "job.yaml:1: a zero byte in a string"},
      {std::string("role: a\n\0", 9), "job.yaml:2: a control character: this is not a text file"},
  };
  for (const auto& bad : kBad) EXPECT_THAT(Error(bad.text), HasSubstr(bad.words)) << bad.text;
}

// If the parser did not reject these files early, some of them could take minutes or exhaust the memory.
TEST(ConfigFileTest, RejectsHostileFilesEarly) {
  EXPECT_THAT(Error("role: " + std::string(100 << 20, 'x')), HasSubstr("at most 65536 bytes"));
  EXPECT_THAT(Error(std::string(60000, '[')), HasSubstr("job.yaml:1: "));
  EXPECT_THAT(Error(std::string(60000, '{')), HasSubstr("job.yaml:1: "));
  std::string indented;
  for (int i = 0; i < 300; ++i) absl::StrAppend(&indented, std::string(static_cast<size_t>(i), ' '), "a:\n");
  EXPECT_THAT(Error(indented), HasSubstr("nested too deeply"));
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 20; ++i) {
    absl::StrAppend(&bomb, "a", i, ": &a", i, " [");
    for (int j = 0; j < 9; ++j) absl::StrAppend(&bomb, "*a", i - 1, ", ");
    absl::StrAppend(&bomb, "]\n");
  }
  EXPECT_THAT(Error(bomb), HasSubstr("job.yaml:1: anchors"));
}

TEST(ConfigFileTest, TruncatedFilesParseOrFailCleanly) {
  const std::string whole =
      "nnodes: 2\nargs: [\"a\", 'b']\nprogram: \"x\"\nenv: {A: \"b\"}\nrole: |\n  several\n  lines\n";
  for (size_t size = 0; size <= whole.size(); ++size) {
    const auto file = ParseConfigFile(whole.substr(0, size), "job.yaml");
    if (!file.ok()) {
      EXPECT_THAT(std::string(file.status().message()), testing::StartsWith("job.yaml:")) << size;
    }
  }
}

TEST(ConfigFileTest, ParsesTheExampleInTheDocumentation) {
  std::ifstream stream("docs/config_file.md");
  const std::string document((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  const std::string begin = "```yaml\n";
  const size_t from = document.find(begin);
  ASSERT_NE(from, std::string::npos);
  const size_t to = document.find("```", from + begin.size());
  const ConfigFile file = Parse(document.substr(from + begin.size(), to - from - begin.size()));
  EXPECT_THAT(Values(file), ElementsAre("nnodes=1:4", "nproc-per-node=gpu", "rdzv-endpoint=node0",
                                        "rdzv-id=job7", "max-restarts=3", "log-dir=logs", "tee=3",
                                        "duplicate-stderr-filters=error,Traceback", "virtual-local-rank="));
  EXPECT_THAT(file.program, ElementsAre("train.py", "--epochs", "3"));
  EXPECT_THAT(file.env, ElementsAre(Pair("NCCL_DEBUG", "WARN"), Pair("OMP_NUM_THREADS", "8")));
}

}  // namespace
}  // namespace ddprun
