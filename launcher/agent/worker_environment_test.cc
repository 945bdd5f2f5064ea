#include "launcher/agent/worker_environment.h"

#include <map>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

std::map<std::string, std::string> Make(const EnvVars& base, int nproc) {
  LaunchConfig config;
  config.num_local_workers = nproc;
  config.role = "trainer";
  config.max_restarts = 3;
  config.run_id = "j";
  const Assignment assignment{.round = Round(4),
                              .group_rank = GroupRank(1),
                              .group_world_size = 2,
                              .first_rank = Rank(2),
                              .world_size = 4,
                              .first_role_rank = 2,
                              .role_world_size = 4,
                              .restart_count = 1,
                              .master_addr = "10.0.0.1",
                              .master_port = 4711};
  const EnvVars vars = WorkerEnvironment(base, config, assignment, LocalRank(1), "/logs/error.json", "sock");
  return {vars.begin(), vars.end()};
}

TEST(WorkerEnvironmentTest, ReadsBackAsTheWorkersPlace) {
  const auto vars = Make({{"PATH", "/bin"}, {"RANK", "99"}}, 2);
  const auto env = DecodeWorkerEnv([&](absl::string_view name) -> std::optional<std::string> {
    const auto it = vars.find(std::string(name));
    return it == vars.end() ? std::nullopt : std::optional(it->second);
  });
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->rank, Rank(3));
  EXPECT_EQ(env->local_rank, LocalRank(1));
  EXPECT_EQ(env->role_rank, 3);
  EXPECT_EQ(env->world_size, 4);
  EXPECT_EQ(env->local_world_size, 2);
  EXPECT_EQ(env->master_port, 4711);
  EXPECT_EQ(env->restart_count, 1);
  EXPECT_EQ(env->round, Round(4));
  EXPECT_EQ(env->agent_socket, "sock");
  EXPECT_EQ(vars.at("PATH"), "/bin");
  EXPECT_EQ(vars.at("TORCHELASTIC_USE_AGENT_STORE"), "True");
}

TEST(WorkerEnvironmentTest, LibrariesGetDefaultsThatTheUserMayOverride) {
  EXPECT_EQ(Make({}, 2).at("OMP_NUM_THREADS"), "1");
  EXPECT_EQ(Make({}, 1).count("OMP_NUM_THREADS"), 0u);
  EXPECT_EQ(Make({{"OMP_NUM_THREADS", "6"}}, 2).at("OMP_NUM_THREADS"), "6");
  EXPECT_EQ(Make({}, 2).at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "1");
  EXPECT_EQ(Make({{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}}, 2).at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "0");
}

}  // namespace
}  // namespace ddprun
