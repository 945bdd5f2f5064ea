#include "launcher/config/join_command.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(JoinCommandTest, HasWhatMustBeEqualAndTheProgramAsTyped) {
  LaunchConfig config;
  config.min_nodes = 1;
  config.max_nodes = 4;
  config.num_local_workers = 8;
  config.max_restarts = 3;
  config.run_id = "j1";
  config.program.typed = {"--module", "train", "--data=/a/b", "--steps", "10"};
  EXPECT_EQ(
      JoinCommand(config, {.host = "10.0.0.7", .port = 4711}),
      "ddprun --nnodes=1:4 --max-restarts=3 --rdzv-backend=c10d --rdzv-endpoint=10.0.0.7:4711 --rdzv-id=j1 "
      "--nproc-per-node=8 --module train --data=/a/b --steps 10");
}

TEST(JoinCommandTest, AShellReadsItAsItIsMeant) {
  LaunchConfig config;
  config.run_id = "my job";
  config.program.typed = {"train", "it's", "", "$HOME", "${local_rank}", "a;b", "*"};
  EXPECT_EQ(JoinCommand(config, {.host = "fd00::7", .port = 1}),
            "ddprun --nnodes=1:1 --max-restarts=0 --rdzv-backend=c10d --rdzv-endpoint=[fd00::7]:1 "
            "--rdzv-id='my job' --nproc-per-node=1 train 'it'\\''s' '' '$HOME' '${local_rank}' 'a;b' '*'");
}

}  // namespace
}  // namespace ddprun
