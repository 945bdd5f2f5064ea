#include "launcher/config/join_command.h"

#include "gtest/gtest.h"

namespace ddprun {
namespace {

TEST(JoinCommandTest, ContainsSharedOptionsAndTheProgramAsTyped) {
  LaunchConfig config;
  config.min_nodes = 1;
  config.max_nodes = 4;
  config.num_local_workers = 8;
  config.rules.max_restarts = 3;
  config.run_id = "j1";
  config.program.typed = {"--module", "train", "--data=/a/b", "--steps", "10"};
  EXPECT_EQ(
      JoinCommand(config, {.host = "10.0.0.7", .port = 4711}),
      "ddprun --nnodes=1:4 --max-restarts=3 --rdzv-backend=c10d --rdzv-endpoint=10.0.0.7:4711 --rdzv-id=j1 "
      "--nproc-per-node=8 --module train --data=/a/b --steps 10");
}

TEST(JoinCommandTest, ContainsRulesThatDifferFromDefaults) {
  LaunchConfig config;
  config.min_nodes = 2;
  config.max_nodes = 4;
  config.run_id = "j1";
  config.rules = {.node_unit = 2,
                  .scale_up = ScaleUp::kAtSnapshot,
                  .snapshot_timeout = seconds(90),
                  .min_uptime = milliseconds(1500),
                  .max_restarts_without_progress = 0};
  config.rdzv.lease = milliseconds(700);
  config.exit_codes = ExitCodes::kScheduler;
  config.virtual_local_rank = true;
  config.pass_local_rank = true;
  config.program.typed = {"train"};
  EXPECT_EQ(JoinCommand(config, {.host = "a", .port = 1}),
            "ddprun --nnodes=2:4 --max-restarts=0 --rdzv-backend=c10d --rdzv-endpoint=a:1 --rdzv-id=j1 "
            "--nproc-per-node=1 --node-unit=2 --scale-up=at-snapshot --snapshot-timeout=90 --min-uptime=1.5 "
            "--max-restarts-without-progress=0 --rdzv-conf=lease_ms=700 --exit-codes=scheduler "
            "--virtual-local-rank --pass-local-rank train");
}

TEST(JoinCommandTest, QuotesForTheShell) {
  LaunchConfig config;
  config.run_id = "my job";
  config.program.typed = {"train", "it's", "", "$HOME", "${local_rank}", "a;b", "*"};
  EXPECT_EQ(JoinCommand(config, {.host = "fd00::7", .port = 1}),
            "ddprun --nnodes=1:1 --max-restarts=0 --rdzv-backend=c10d --rdzv-endpoint=[fd00::7]:1 "
            "--rdzv-id='my job' --nproc-per-node=1 train 'it'\\''s' '' '$HOME' '${local_rank}' 'a;b' '*'");
}

}  // namespace
}  // namespace ddprun
