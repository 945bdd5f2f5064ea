// Runs scripts through kRunPathProgram with a real Python interpreter.
#include "launcher/config/run_path.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/report/error_file.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class RunPathTest : public testing::Test {
 protected:
  struct Result {
    int exit_code = -1;
    std::string output;  // stdout and stderr
  };

  RunPathTest() {
    dir_ =
        absl::StrCat(testing::TempDir(), "/", testing::UnitTest::GetInstance()->current_test_info()->name());
    mkdir(dir_.c_str(), 0755);
    error_file_ = dir_ + "/error.json";
    setenv("PROGRAM", kRunPathProgram, 1);
    setenv("TORCHELASTIC_ERROR_FILE", error_file_.c_str(), 1);
  }
  void Write(const std::string& name, absl::string_view text) {
    std::ofstream(absl::StrCat(dir_, "/", name), std::ios::binary) << text;
  }
  // Runs the program in dir_ with `arguments`, which a shell parses.
  Result Run(const std::string& arguments) {
    const std::string command =
        absl::StrCat("cd '", dir_, "' && python3 -u -c \"$PROGRAM\" ", arguments, " 2>&1");
    FILE* const pipe = popen(command.c_str(), "r");
    Result result;
    char buffer[4096];
    while (const size_t n = fread(buffer, 1, sizeof buffer, pipe)) result.output.append(buffer, n);
    const int status = pclose(pipe);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
  }

  std::string dir_;
  std::string error_file_;
};

TEST_F(RunPathTest, RunsTheScriptAsMainWithItsArguments) {
  mkdir((dir_ + "/sub").c_str(), 0755);
  Write("sub/helper.py", "NAME = 'beside the script'\n");
  Write("sub/train.py",
        "import sys, helper\nprint(__name__, __file__, sys.argv, helper.NAME, sys.modules['__main__'].sys is "
        "sys)\n");
  const Result run = Run("sub/train.py --lr 1 'a b'");
  EXPECT_EQ(run.output,
            "__main__ sub/train.py ['sub/train.py', '--lr', '1', 'a b'] beside the script True\n");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(ReadAll(error_file_), IsEmpty());
}

TEST_F(RunPathTest, WorkingDirectoryIsNotOnTheModulePath) {
  mkdir((dir_ + "/sub").c_str(), 0755);
  Write("json.py", "print('the wrong module')\n");
  Write("sub/train.py", "import json\njson.loads('x')\n");
  const Result run = Run("sub/train.py");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.output, HasSubstr("json.decoder.JSONDecodeError: "));
  EXPECT_TRUE(ReadErrorFile(error_file_).has_value()) << run.output;
}

TEST_F(RunPathTest, WritesAnUncaughtExceptionToTheErrorFile) {
  Write("train.py", "def step():\n    raise ValueError('no \"data\": \\u00e4')\n\nstep()\n");
  const Result run = Run("train.py");
  EXPECT_EQ(run.exit_code, 1);
  const std::optional<WorkerError> error = ReadErrorFile(error_file_);
  ASSERT_TRUE(error.has_value()) << run.output;
  EXPECT_THAT(error->json, HasSubstr(R"("message": "ValueError: no \"data\": \u00e4")"));
  EXPECT_GT(error->timestamp, 1'600'000'000);
  const auto from_the_script =
      AllOf(StartsWith("Traceback (most recent call last):\n  File \"train.py\", line 4, in <module>"),
            HasSubstr("line 2, in step"), HasSubstr("ValueError: no \"data\": \u00e4"));
  EXPECT_THAT(error->text, from_the_script);
  EXPECT_THAT(run.output, from_the_script) << "the output must be the same as without --run-path";
}

TEST_F(RunPathTest, SystemExitKeepsItsMeaning) {
  const struct {
    const char* argument;
    int exit_code;
    const char* output;
  } kCases[] = {{"0", 0, ""}, {"None", 0, ""}, {"3", 3, ""}, {"'too bad'", 1, "too bad\n"}};
  for (const auto& c : kCases) {
    Write("train.py", absl::StrCat("import sys\nsys.exit(", c.argument, ")\n"));
    const Result run = Run("train.py");
    EXPECT_EQ(run.exit_code, c.exit_code) << c.argument;
    EXPECT_EQ(run.output, c.output) << c.argument;
  }
  EXPECT_THAT(ReadAll(error_file_), IsEmpty());
}

TEST_F(RunPathTest, KeepsAnErrorFileWrittenByTheScript) {
  Write("train.py", "import os\nopen(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('mine')\n1 / 0\n");
  EXPECT_EQ(Run("train.py").exit_code, 1);
  EXPECT_EQ(ReadAll(error_file_), "mine");
}

TEST_F(RunPathTest, PrintsTheExceptionWithoutAnErrorFile) {
  Write("train.py", "1 / 0\n");
  for (const char* file : {"", "/no/such/dir/error.json"}) {
    setenv("TORCHELASTIC_ERROR_FILE", file, 1);
    const Result run = Run("train.py");
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.output, HasSubstr("ZeroDivisionError: division by zero\n"));
    EXPECT_EQ(run.output.find("cannot write the error to /no/such/dir") != std::string::npos, *file != '\0');
  }
}

TEST_F(RunPathTest, ReportsAnInvalidOrMissingScript) {
  Write("train.py", "def (:\n");
  const Result run = Run("train.py");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.output, AllOf(HasSubstr("File \"train.py\", line 1"), HasSubstr("SyntaxError"),
                                Not(HasSubstr("runpy"))));
  EXPECT_THAT(Run("lost.py").output, AllOf(StartsWith("FileNotFoundError: "), HasSubstr("lost.py'")));
}

TEST_F(RunPathTest, RunsADirectoryWithAMainModule) {
  mkdir((dir_ + "/pack").c_str(), 0755);
  Write("pack/__main__.py", "import sys\nprint(sys.argv)\nraise KeyError('k')\n");
  const Result run = Run("pack x");
  EXPECT_THAT(run.output, AllOf(StartsWith("['pack', 'x']\n"), HasSubstr("pack/__main__.py\", line 3"),
                                Not(HasSubstr("runpy"))));
}

// DataLoader and torch.multiprocessing.spawn can use the start method spawn.
TEST_F(RunPathTest, ScriptCanUseTheSpawnStartMethod) {
  Write("train.py",
        "import multiprocessing\n"
        "def double(x):\n    return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(double, [1, 2]))\n");
  const Result run = Run("train.py");
  EXPECT_EQ(run.output, "[2, 4]\n");
  EXPECT_EQ(run.exit_code, 0);
}

}  // namespace
}  // namespace ddprun
