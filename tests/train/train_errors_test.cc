// Tests that `train` reports bad input with a remedy before it trains. The exit code is 2 for usage errors
// and 1 for other errors.
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/train/job.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Case {
  std::vector<std::string> flags;  // override those of a tiny model; "DIR" stands for the test's directory
  int code;
  std::string message;  // expected on standard error; "DIR" stands for the test's directory
};

std::string Replace(std::string text, const std::string& directory) {
  for (size_t at; (at = text.find("DIR")) != std::string::npos;) text.replace(at, 3, directory);
  return text;
}

void Expect(const Case& c, const std::string& directory) {
  std::vector<std::string> argv = {ProgramPath("examples/train/train"),
                                   "--layers=1",
                                   "--heads=2",
                                   "--width=16",
                                   "--context=16",
                                   "--global-batch=4",
                                   "--steps=2"};
  // Removes the flags of the tiny model that the case overrides, because `train` rejects repeated flags.
  for (const std::string& flag : c.flags) {
    const std::string name = flag.substr(0, flag.find('='));
    std::erase_if(argv, [&](const std::string& arg) { return arg.substr(0, arg.find('=')) == name; });
    argv.push_back(Replace(flag, directory));
  }
  SCOPED_TRACE(testing::PrintToString(argv));
  Child child(argv, {});
  EXPECT_EQ(child.Wait(), (ChildEnd{.code = c.code}));
  EXPECT_THAT(child.err(), HasSubstr("train: "));
  EXPECT_THAT(child.err(), HasSubstr(Replace(c.message, directory)));
  EXPECT_THAT(child.out(), Not(HasSubstr("step=1/"))) << "training has started";
}

class TrainErrorsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(WriteFile(directory_ + "/empty", "").ok());
    ASSERT_TRUE(WriteFile(directory_ + "/short", "sixteen bytes...").ok());
    ASSERT_TRUE(WriteFile(directory_ + "/text", std::string(1000, 'a')).ok());
    std::filesystem::create_directory(directory_ + "/void");
  }
  void ExpectAll(const std::vector<Case>& cases) {
    for (const Case& c : cases) Expect(c, directory_);
  }

  const std::string directory_ = MakeTestDirectory();
};

TEST_F(TrainErrorsTest, Usage) {
  ExpectAll({
      {{"--bogus"}, 2, "unrecognised option '--bogus'"},
      {{"--steps=many"}, 2, "the argument ('many') for option '--steps' is invalid"},
      {{"--heads=3"}, 2, "--heads=3 does not divide --width=16"},
      {{"--global-batch=0"}, 2, "--global-batch=0: must be at least 1"},
      {{"--chart=DIR/c.svg"}, 2, "give --metrics=FILE, too"},
  });
}

TEST_F(TrainErrorsTest, Text) {
  ExpectAll({
      {{"--data=DIR/none"}, 1, "--data: there is no DIR/none: give a file or directory with text"},
      {{"--data=DIR/empty"}, 1, "--data: DIR/empty holds no text to learn"},
      {{"--data=DIR/void"}, 1, "--data: DIR/void holds no text to learn"},
      {{"--data=/dev/null"}, 1, "--data: /dev/null is neither a file nor a directory"},
      {{"--data=DIR/short"}, 1, "--context=16 is longer than the text: DIR/short has 16 bytes"},
      {{"--context=60000"}, 1, "--context=60000 is longer than the text: the built-in text has "},
  });
}

TEST_F(TrainErrorsTest, Files) {
  ExpectAll({
      {{"--snapshot-dir=DIR/text"}, 1, "--snapshot-dir: cannot make directory DIR/text: Not a directory"},
      {{"--snapshot-dir=/dev/null/x"},
       1,
       "--snapshot-dir: cannot make directory /dev/null/x: Not a directory"},
      {{"--snapshot-dir=/proc/self"}, 1, "--snapshot-dir: cannot create /proc/self/.writable-"},
      {{"--metrics=DIR/none/m"}, 1, "--metrics: cannot open DIR/none/m: No such file or directory"},
  });
}

TEST_F(TrainErrorsTest, SnapshotWrittenWithOtherFlags) {
  Train({}, {"--layers=1", "--heads=2", "--width=16", "--context=16", "--global-batch=4", "--steps=1",
             "--snapshot-dir=" + directory_ + "/s"});
  const std::string begin = "DIR/s/snapshot-000000000001-r0.ddp: written with ";
  ExpectAll({
      {{"--snapshot-dir=DIR/s", "--width=32"},
       1,
       begin + "--width=16, but this run has --width=32: use the same "},
      {{"--snapshot-dir=DIR/s", "--heads=4"}, 1, begin + "--heads=2, but this run has --heads=4"},
      {{"--snapshot-dir=DIR/s", "--layers=2"}, 1, begin + "--layers=1, but this run has --layers=2"},
      {{"--snapshot-dir=DIR/s", "--context=8"}, 1, begin + "--context=16, but this run has --context=8"},
      {{"--snapshot-dir=DIR/s", "--seed=9"}, 1, begin + "--seed=1, but this run has --seed=9"},
      {{"--snapshot-dir=DIR/s", "--data=DIR/text"}, 1, begin + "--data=sha256:"},
  });
}

// On a full disk, each snapshot fails with a message. Training fails only at its end, because the last
// snapshot cannot be written. The shell's limit of 4 MB per file simulates the full disk; a snapshot here has
// 5 MB.
TEST_F(TrainErrorsTest, FullDisk) {
  const std::string train = ProgramPath("examples/train/train") +
                            " --layers=2 --heads=2 --width=128 --context=16 --global-batch=4 --steps=5 "
                            "--log-every=1 --snapshot-every=2 --snapshot-dir=" +
                            directory_ + "/s";
  Child child({"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 8000; exec " + train}, {});
  EXPECT_EQ(child.Wait(), (ChildEnd{.code = 1}));
  EXPECT_THAT(child.out(), HasSubstr("step=5/5"));
  EXPECT_THAT(child.err(),
              HasSubstr("train: no snapshot of step 2: cannot write " + directory_ + "/s/.snapshot-"));
  EXPECT_THAT(child.err(),
              HasSubstr("training continues, the next one is due at step 4; free space there\n"));
  EXPECT_THAT(child.err(), HasSubstr("train: no snapshot of step 4: "));
  EXPECT_THAT(child.err(), HasSubstr("train: the last snapshot: cannot write "));
  EXPECT_THAT(ListDirectory(directory_ + "/s").value(), testing::ElementsAre("claim", "ledger"));
}

// Tests errors that the environment causes, and the error file that the environment names.
TEST_F(TrainErrorsTest, Environment) {
  Child child({ProgramPath("examples/train/train"), "--global-batch=4"},
              {{"RANK", "0"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(child.Wait(), (ChildEnd{.code = 2}));
  EXPECT_THAT(child.err(),
              HasSubstr("train: --global-batch=4 for 8 workers: give at least one sequence to each"));

  // The launcher reads this file for its report.
  const std::string error_file = directory_ + "/error.json";
  Child reporting({ProgramPath("examples/train/train"), "--data=" + directory_ + "/none"},
                  {{"TORCHELASTIC_ERROR_FILE", error_file}});
  EXPECT_EQ(reporting.Wait(), (ChildEnd{.code = 1}));
  EXPECT_THAT(ReadFile(error_file).value(), HasSubstr("--data: there is no "));

  Child garbage({ProgramPath("examples/train/train")}, {{"RANK", "x"}, {"WORLD_SIZE", "8"}});
  EXPECT_EQ(garbage.Wait(), (ChildEnd{.code = 1}));
  EXPECT_THAT(garbage.err(), HasSubstr("RANK=\"x\""));
}

}  // namespace
}  // namespace ddprun
