#include "base/worker_env.h"

#include <map>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

absl::StatusOr<WorkerEnv> Decode(const std::map<std::string, std::string>& vars) {
  const auto get = [&](std::string_view name) -> std::optional<std::string> {
    const auto it = vars.find(std::string(name));
    if (it == vars.end()) return std::nullopt;
    return it->second;
  };
  std::string error;
  const std::optional<WorkerEnv> env = DecodeWorkerEnv(get, &error);
  if (!env) return absl::InvalidArgumentError(error);
  return *env;
}

WorkerEnv Sample() {
  return {.rank = Rank(5),
          .local_rank = LocalRank(1),
          .group_rank = GroupRank(2),
          .world_size = 7,
          .local_world_size = 2,
          .group_world_size = 3,
          .role_rank = 4,
          .role_world_size = 6,
          .role_name = "trainer",
          .master_addr = "node1.example",
          .master_port = 29401,
          .restart_count = 2,
          .max_restarts = 9,
          .run_id = "j1",
          .error_file = "/logs/error.json",
          .round = Round(11),
          .agent_socket = "ddprun-1",
          .node_addr = "10.0.0.3",
          .lease = milliseconds(5000)};
}

TEST(WorkerEnvTest, RoundTrips) {
  const EnvVars vars = EncodeWorkerEnv(Sample());
  const auto read = Decode({vars.begin(), vars.end()});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Sample());
}

// --max-restarts accepts every int.
TEST(WorkerEnvTest, RestartsAreLimitedByTheirTypeOnly) {
  WorkerEnv env = Sample();
  env.max_restarts = INT32_MAX;
  env.restart_count = INT32_MAX - 1;
  const EnvVars vars = EncodeWorkerEnv(env);
  const auto read = Decode({vars.begin(), vars.end()});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, env);
}

TEST(WorkerEnvTest, VirtualLocalRankIsZeroForPyTorchButNotForTheSdk) {
  WorkerEnv env = Sample();
  env.virtual_local_rank = true;
  env.agent_store = false;
  const EnvVars vars = EncodeWorkerEnv(env);
  const std::map<std::string, std::string> by_name(vars.begin(), vars.end());
  EXPECT_EQ(by_name.at("LOCAL_RANK"), "0");
  EXPECT_EQ(by_name.at("TORCHELASTIC_USE_AGENT_STORE"), "False");
  const auto read = Decode(by_name);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, env);
}

TEST(WorkerEnvTest, ProcessStartedByHandHasWorldSizeOne) {
  const auto env = Decode({});
  ASSERT_TRUE(env.ok()) << env.status();
  EXPECT_EQ(env->world_size, 1);
  EXPECT_EQ(env->rank, Rank(0));
  EXPECT_EQ(env->master_port, 0);
}

TEST(WorkerEnvTest, ErrorsNameTheVariable) {
  const struct {
    const char* name;
    const char* value;
  } kBad[] = {{"RANK", "7"},
              {"RANK", "-1"},
              {"RANK", "x"},
              {"RANK", ""},
              {"WORLD_SIZE", "0"},
              {"WORLD_SIZE", "1e9"},
              {"LOCAL_RANK", "2"},
              {"MASTER_PORT", "0"},
              {"MASTER_PORT", "65536"},
              {"GROUP_RANK", "3"},
              {"DDPRUN_ROUND", "-1"},
              {"DDPRUN_LOCAL_RANK", "2"},
              {"DDPRUN_LEASE_MS", "0"},
              {"DDPRUN_LEASE_MS", "5s"},
              {"TORCHELASTIC_USE_AGENT_STORE", "true"}};
  for (const auto& bad : kBad) {
    const EnvVars good = EncodeWorkerEnv(Sample());
    std::map<std::string, std::string> vars(good.begin(), good.end());
    vars[bad.name] = bad.value;
    const auto read = Decode(vars);
    ASSERT_FALSE(read.ok()) << bad.name << "=" << bad.value;
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(read.status().message().find(bad.name), std::string::npos) << read.status();
  }
}

TEST(WorkerEnvTest, RejectsSeveralWorkersWithoutAMaster) {
  EXPECT_FALSE(Decode({{"WORLD_SIZE", "2"}, {"RANK", "0"}}).ok());
}

}  // namespace
}  // namespace ddprun
