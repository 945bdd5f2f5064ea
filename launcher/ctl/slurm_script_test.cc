#include "launcher/ctl/slurm_script.h"

#include "absl/strings/str_join.h"
#include "boost/program_options.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ErrorOf(const std::vector<std::string>& args) {
  try {
    return "no error, but: " + SlurmScript(args);
  } catch (const boost::program_options::error& e) {
    return e.what();
  }
}

TEST(SlurmScriptTest, FixedNumberOfNodes) {
  EXPECT_EQ(SlurmScript({"--nodes=4", "--gpus-per-node=8", "--time=60", "--", "train.py", "--lr=0.1"}),
            R"(#!/bin/bash
#SBATCH --gpus-per-node=8
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=60
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append

# One agent on each node. It exits with 75 if another start may succeed.
srun --ntasks-per-node=1 \
  ddprun --preempt-signal=SIGUSR1@120 --exit-codes=scheduler \
  train.py --lr=0.1
code=$?
[ $code -ne 75 ] || scontrol requeue $SLURM_JOB_ID
exit $code
)");
}

TEST(SlurmScriptTest, ARangeOfNodesSurvivesTheLossOfNodes) {
  EXPECT_EQ(SlurmScript({"--nodes=2-4", "--job-name=gpt", "--account=lab", "--partition=a,b", "--qos=high",
                         "--mem=0", "--output=logs/%x-%j.out", "--cpus-per-task=32", "--notice=5m",
                         "--time=1-00:00:00", "--", "--max-restarts=3", "train.py"}),
            R"(#!/bin/bash
#SBATCH --job-name=gpt
#SBATCH --account=lab
#SBATCH --partition=a,b
#SBATCH --qos=high
#SBATCH --mem=0
#SBATCH --output=logs/%x-%j.out
#SBATCH --nodes=2-4
#SBATCH --cpus-per-task=32
#SBATCH --time=1-00:00:00
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --no-kill

# One agent on each node. It exits with 75 if another start may succeed.
srun --ntasks-per-node=1 --cpus-per-task=32 --no-kill --kill-on-bad-exit=0 \
  ddprun --preempt-signal=SIGUSR1@300 --exit-codes=scheduler --nnodes=2:4 \
  --max-restarts=3 train.py
code=$?
[ $code -ne 75 ] || scontrol requeue $SLURM_JOB_ID
exit $code
)");
}

TEST(SlurmScriptTest, ArgumentsOfDdprunAreQuoted) {
  EXPECT_THAT(SlurmScript({"--", "sh", "-c", "echo \"$RANK\" it's", "", "--", "--nodes=0"}),
              HasSubstr("\n  sh -c 'echo \"$RANK\" it'\\''s' '' -- --nodes=0\n"));
}

TEST(SlurmScriptTest, TimeLimits) {
  for (const char* time : {"3", "0", "2:01", "0:02:01", "0-1", "0-0:03", "0-0:0:121", "365-0"})
    EXPECT_THAT(SlurmScript({std::string("--time=") + time, "--", "x"}),
                HasSubstr(std::string("--time=") + time));
  // At most the notice.
  for (const char* time : {"2", "1:60", "0:02:00", "0-0:02"})
    EXPECT_THAT(ErrorOf({std::string("--time=") + time, "--", "x"}),
                HasSubstr("more than the 120 s of --notice"));
}

TEST(SlurmScriptTest, Help) {
  EXPECT_THAT(SlurmScript({"--help"}), AllOf(HasSubstr("Usage: ddpctl slurm-script"),
                                             HasSubstr("--gpus-per-node"), Not(HasSubstr("#SBATCH"))));
}

TEST(SlurmScriptTest, ErrorsNameOptionValueAndRemedy) {
  const struct {
    std::vector<std::string> args;
    const char* words;
  } kCases[] = {
      {{}, "slurm-script: no program given: write -- and then"},
      {{"--nodes=2"}, "no program given: write -- and then"},
      {{"--nodes=2", "--"}, "no program given: write -- and then"},
      {{"--nodes=2", "train.py"}, "unexpected \"train.py\": write -- before"},
      {{"--nodes=0", "--", "x"}, "--nodes=0: expected a number of nodes, or MIN-MAX, such as 2-4"},
      {{"--nodes=2:4", "--", "x"}, "--nodes=2:4: expected a number of nodes, or MIN-MAX"},
      {{"--nodes=+2", "--", "x"}, "--nodes=+2: expected a number of nodes"},
      {{"--nodes=2-", "--", "x"}, "--nodes=2-: expected a number of nodes"},
      {{"--nodes=99999999999", "--", "x"}, "--nodes=99999999999: expected a number of nodes"},
      {{"--nodes=4-2", "--", "x"}, "--nodes=4-2: expected a maximum that is not below the minimum"},
      {{"--cpus-per-task=all", "--", "x"}, "--cpus-per-task=all: expected a number of CPUs, at least 1"},
      {{"--notice=0", "--", "x"}, "--notice=0: expected a time of more than 0, such as 90s or 2m"},
      {{"--notice=1500ms", "--", "x"}, "--notice=1500ms: expected whole seconds"},
      {{"--notice=19h", "--", "x"}, "--notice=19h: expected whole seconds, at most 65535"},
      {{"--time=1h", "--", "x"}, "--time=1h: expected minutes, hours:minutes:seconds or"},
      {{"--time=1:2:3:4", "--", "x"}, "--time=1:2:3:4: expected minutes"},
      {{"--time=-1", "--", "x"}, "--time=-1: expected minutes"},
      {{"--job-name=a b", "--", "x"}, "--job-name=a b: expected letters, digits and the characters"},
      {{"--output=x\n#SBATCH --uid=0", "--", "x"}, "expected letters, digits and the characters"},
      {{"--mem=", "--", "x"}, "--mem"},
      {{"--node=2", "--", "x"}, "--node"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(absl::StrJoin(c.args, " "));
    EXPECT_THAT(ErrorOf(c.args), HasSubstr(c.words));
    EXPECT_THAT(ErrorOf(c.args), Not(HasSubstr("no error")));
  }
}

}  // namespace
}  // namespace ddprun
