#include "launcher/config/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/config/run_path.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A directory tree with cwd/, beside/ (the directory of ddprun) and bin/ (on PATH).
class ProgramTest : public testing::Test {
 protected:
  ProgramTest() {
    root_ =
        absl::StrCat(testing::TempDir(), "/", testing::UnitTest::GetInstance()->current_test_info()->name());
    for (const char* dir : {"", "/cwd", "/beside", "/bin", "/cwd/folder"}) mkdir((root_ + dir).c_str(), 0755);
    Make("bin/python3", 0755);
  }
  void Make(const std::string& file, int mode, absl::string_view text = "#!/bin/true\n") {
    const std::string path = absl::StrCat(root_, "/", file);
    std::ofstream(path, std::ios::binary) << text;
    chmod(path.c_str(), mode);
  }
  absl::StatusOr<WorkerProgram> Find(const std::vector<std::string>& typed,
                                     ProgramKind kind = ProgramKind::kAuto) {
    return FindProgram(typed, kind,
                       {.cwd = root_ + "/cwd",
                        .ddprun_dir = root_ + "/beside",
                        .get_env = [this](absl::string_view name) -> std::optional<std::string> {
                          const auto it = env_.find(std::string(name));
                          if (it == env_.end()) return std::nullopt;
                          return it->second;
                        }});
  }
  std::vector<std::string> Argv(const std::vector<std::string>& typed,
                                ProgramKind kind = ProgramKind::kAuto) {
    const auto program = Find(typed, kind);
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? program->argv : std::vector<std::string>();
  }
  std::string Error(const std::vector<std::string>& typed, ProgramKind kind = ProgramKind::kAuto) {
    const auto program = Find(typed, kind);
    EXPECT_EQ(program.status().code(), absl::StatusCode::kNotFound) << program.status();
    return std::string(program.status().message());
  }
  std::string Python() const { return root_ + "/bin/python3"; }

  std::string root_;
  std::map<std::string, std::string> env_ = {
      {"PATH", "/nonexistent:" + testing::TempDir() + "/" +
                   testing::UnitTest::GetInstance()->current_test_info()->name() + "/bin"}};
};

TEST_F(ProgramTest, SearchesWorkingDirectoryThenDdprunDirectoryThenPath) {
  Make("bin/train", 0755);
  EXPECT_THAT(Argv({"train", "--x"}), ElementsAre(root_ + "/bin/train", "--x"));
  Make("beside/train", 0755);
  EXPECT_THAT(Argv({"train"}), ElementsAre(root_ + "/beside/train"));
  Make("cwd/train", 0755);
  EXPECT_THAT(Argv({"train"}), ElementsAre("./train"));
}

TEST_F(ProgramTest, ADataFileDoesNotHideAProgram) {
  Make("cwd/train", 0644);
  Make("beside/train", 0755);
  EXPECT_THAT(Argv({"train"}), ElementsAre(root_ + "/beside/train"));
}

TEST_F(ProgramTest, PythonRunsScriptsEvenIfExecutable) {
  Make("cwd/train.py", 0755);
  const auto program = Find({"train.py", "a b"});
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(program->argv, ElementsAre(Python(), "-u", "train.py", "a b"));
  EXPECT_EQ(program->name, "train.py");
  Make("cwd/folder/other.py", 0644);
  EXPECT_THAT(Argv({"folder/other.py"}), ElementsAre(Python(), "-u", "folder/other.py"));
  Make("cwd/script", 0644);
  EXPECT_THAT(Argv({"./script"}), ElementsAre(Python(), "-u", "./script"));
  EXPECT_THAT(Argv({"script"}), ElementsAre(Python(), "-u", "script"));
}

TEST_F(ProgramTest, PythonExecSelectsTheInterpreter) {
  Make("cwd/train.py", 0644);
  Make("bin/pypy", 0755);
  env_["PYTHON_EXEC"] = "pypy";
  EXPECT_THAT(Argv({"train.py"})[0], root_ + "/bin/pypy");
  env_["PYTHON_EXEC"] = root_ + "/bin/pypy";
  EXPECT_THAT(Argv({"train.py"})[0], root_ + "/bin/pypy");
  env_["PYTHON_EXEC"] = "/no/python";
  EXPECT_THAT(Error({"train.py"}), HasSubstr("PYTHON_EXEC=/no/python"));
  env_ = {{"PATH", "/nonexistent"}};
  EXPECT_THAT(Error({"train.py"}), HasSubstr("no python3 on PATH"));
}

TEST_F(ProgramTest, RunsModulesWithPython) {
  const auto program = Find({"package.train", "--m"}, ProgramKind::kModule);
  EXPECT_THAT(program->argv, ElementsAre(Python(), "-u", "-m", "package.train", "--m"));
  EXPECT_EQ(program->name, "package.train");
}

TEST_F(ProgramTest, NoPythonSearchesPathOnly) {
  Make("bin/tool", 0755);
  Make("cwd/tool", 0755);
  Make("cwd/run.py", 0755);
  const auto tool = Find({"tool", "x"}, ProgramKind::kNoPython);
  ASSERT_TRUE(tool.ok()) << tool.status();
  EXPECT_EQ(tool->file, root_ + "/bin/tool");
  EXPECT_THAT(tool->argv, ElementsAre("tool", "x")) << "argv[0] must be the name as typed";
  EXPECT_THAT(Argv({"./run.py"}, ProgramKind::kNoPython), ElementsAre("./run.py"));
  EXPECT_THAT(Error({"missing"}, ProgramKind::kNoPython), HasSubstr("not found on PATH"));
  EXPECT_THAT(Error({"./missing"}, ProgramKind::kNoPython), HasSubstr("./missing"));
}

TEST_F(ProgramTest, RunPathPassesTheScriptToThePythonProgram) {
  Make("cwd/train.py", 0644);
  const auto program = Find({"./train.py", "--lr", "1"}, ProgramKind::kRunPath);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(program->argv, ElementsAre(Python(), "-u", "-c", kRunPathProgram, "./train.py", "--lr", "1"));
  EXPECT_THAT(program->typed, ElementsAre("--run-path", "./train.py", "--lr", "1"));
  EXPECT_EQ(program->name, "./train.py");
  EXPECT_THAT(kRunPathProgram, Not(HasSubstr("$"))) << "SubstituteLocalRank would replace a '$'";
  EXPECT_THAT(Error({"lost.py"}, ProgramKind::kRunPath), HasSubstr("no such script: lost.py"));
}

TEST_F(ProgramTest, PassesTheLocalRankAsTheFirstUserArgument) {
  Make("cwd/train.py", 0644);
  Make("bin/tool", 0755);
  const auto with_rank = [this](const std::vector<std::string>& typed, ProgramKind kind) {
    const auto program = Find(typed, kind);
    EXPECT_TRUE(program.ok()) << program.status();
    return ArgumentsFor(*program, LocalRank(3), true);
  };
  EXPECT_THAT(with_rank({"train.py", "x"}, ProgramKind::kAuto),
              ElementsAre(Python(), "-u", "train.py", "--local-rank=3", "x"));
  EXPECT_THAT(with_rank({"pack.train", "x"}, ProgramKind::kModule),
              ElementsAre(Python(), "-u", "-m", "pack.train", "--local-rank=3", "x"));
  EXPECT_THAT(with_rank({"tool"}, ProgramKind::kNoPython), ElementsAre("tool", "--local-rank=3"));
  EXPECT_THAT(with_rank({"train.py", "x"}, ProgramKind::kRunPath),
              ElementsAre(Python(), "-u", "-c", kRunPathProgram, "train.py", "--local-rank=3", "x"));
}

TEST_F(ProgramTest, AMissingProgramErrorListsTheSearchedPlaces) {
  for (const char* missing : {"trian", "trian.py"}) {
    const std::string error = Error({missing});
    for (const std::string& place : {root_ + "/cwd", root_ + "/beside", std::string("PATH")}) {
      EXPECT_THAT(error, HasSubstr(place));
    }
    EXPECT_THAT(error, Not(HasSubstr(root_ + "/bin")))
        << "the value of PATH, which may be very long, must not be printed";
  }
  EXPECT_EQ(Error({"dir/trian.py"}), "no such program: dir/trian.py");
  EXPECT_THAT(Error({"folder"}), HasSubstr("folder is a directory without a __main__.py"));
}

TEST_F(ProgramTest, PythonRunsStandardInput) {
  EXPECT_THAT(Argv({"-", "x"}), ElementsAre(Python(), "-u", "-", "x"));
}

TEST_F(ProgramTest, PythonRunsDirectoriesAndArchives) {
  Make("bin/folder", 0755);
  Make("cwd/folder/__main__.py", 0644);
  EXPECT_THAT(Argv({"folder", "x"}), ElementsAre(Python(), "-u", "folder", "x"));
  EXPECT_THAT(Argv({"./folder/"}), ElementsAre(Python(), "-u", "./folder/"));
  Make("cwd/plain.zip", 0644, absl::string_view("PK\3\4\0\0", 6));
  EXPECT_THAT(Argv({"plain.zip"}), ElementsAre(Python(), "-u", "plain.zip"));
  Make("cwd/app", 0755, absl::string_view("PK\3\4\0\0", 6));
  EXPECT_THAT(Argv({"app"}), ElementsAre(Python(), "-u", "app"));
  Make("cwd/app.pyz", 0755, absl::string_view("#!/usr/bin/python3\nPK\3\4\0\0", 25));
  EXPECT_THAT(Argv({"./app.pyz"}), ElementsAre("./app.pyz")) << "a file with a #! line must be run directly";
}

TEST_F(ProgramTest, PythonRunsExecutableTextWithoutAShebang) {
  Make("cwd/train", 0755, "print('hi')\n");
  EXPECT_THAT(Argv({"train"}), ElementsAre(Python(), "-u", "train"));
  EXPECT_THAT(Argv({"./train"}), ElementsAre(Python(), "-u", "./train"));
  Make("cwd/empty", 0755, "");
  EXPECT_THAT(Argv({"./empty"}), ElementsAre(Python(), "-u", "./empty"));
  Make("cwd/script", 0755, "#!/bin/sh\n");
  EXPECT_THAT(Argv({"script"}), ElementsAre("./script"));
  Make("cwd/data", 0755, absl::string_view("MZ\0\1", 4));
  EXPECT_THAT(Argv({"data"}), ElementsAre("./data"))
      << "a binary must be run directly; execve reports the error";
}

TEST_F(ProgramTest, DoesNotReadFromAPipe) {
  const std::string fifo = root_ + "/cwd/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0755), 0);
  // O_RDWR opens both ends of the FIFO, so open() does not block.
  const int fd = open(fifo.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, "text", 4), 4);
  EXPECT_THAT(Argv({"./fifo"}), ElementsAre(Python(), "-u", "./fifo"));
  char left[8];
  EXPECT_EQ(read(fd, left, sizeof left), 4);
  close(fd);
}

TEST_F(ProgramTest, ABinaryWithoutExecutePermissionIsAnError) {
  Make("cwd/binary", 0644, "\177ELF\2\1");
  const auto program = Find({"./binary"});
  EXPECT_EQ(program.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(program.status().message()), HasSubstr("chmod +x ./binary"));
}

TEST_F(ProgramTest, DoesNotSearchForProgramsWithVariables) {
  EXPECT_THAT(Argv({"./run_${local_rank}.sh"}), ElementsAre("./run_${local_rank}.sh"));
  EXPECT_THAT(Argv({"run_$local_rank.py"}), ElementsAre(Python(), "-u", "run_$local_rank.py"));
}

TEST(SubstituteLocalRankTest, FollowsPythonTemplates) {
  const struct {
    const char* text;
    const char* want;
  } kCases[] = {{"", ""},
                {"plain", "plain"},
                {"${local_rank}", "3"},
                {"$local_rank", "3"},
                {"a${local_rank}b$local_rank.c", "a3b3.c"},
                {"$local_rank2", "$local_rank2"},
                {"$local_rank_", "$local_rank_"},
                {"$$local_rank", "$local_rank"},
                {"$$$local_rank", "$3"},
                {"${rank} $HOME ${ local_rank}", "${rank} $HOME ${ local_rank}"},
                {"cost: 5$", "cost: 5$"},
                {"$$", "$"},
                {"${local_rank", "${local_rank"}};
  for (const auto& c : kCases) EXPECT_EQ(SubstituteLocalRank(c.text, LocalRank(3)), c.want) << c.text;
  EXPECT_THAT(ArgumentsFor({.argv = {"p", "--d=${local_rank}"}, .name = "p"}, LocalRank(11), false),
              ElementsAre("p", "--d=11"));
}

}  // namespace
}  // namespace ddprun
