#include "launcher/workers/worker_environment.h"

#include <csignal>
#include <cstdlib>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using EnvMap = std::map<std::string, std::string>;

LaunchConfig Config(int nproc) {
  LaunchConfig config;
  config.num_local_workers = nproc;
  config.role = "trainer";
  config.rules.max_restarts = 3;
  config.run_id = "j";
  return config;
}

// Returns the environment of the worker `local_rank`. The worker with local rank 0 has rank 2.
EnvMap Make(const EnvVars& base, const LaunchConfig& config, int local_rank = 1) {
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
  const EnvVars vars = WorkerEnvironment(base, config, assignment, LocalRank(local_rank),
                                         {.error_file = "/logs/error.json", .agent_socket = "sock"});
  return {vars.begin(), vars.end()};
}

absl::StatusOr<WorkerEnv> Decode(const EnvMap& vars) {
  const auto get = [&](std::string_view name) -> std::optional<std::string> {
    const auto it = vars.find(std::string(name));
    return it == vars.end() ? std::nullopt : std::optional(it->second);
  };
  std::string error;
  const std::optional<WorkerEnv> env = DecodeWorkerEnv(get, &error);
  if (!env) return absl::InvalidArgumentError(error);
  return *env;
}

// A worker that is offered a place must find there what a worker that is started in it finds in its environment.
TEST(WorkerEnvironmentTest, AnOfferHasThePlaceThatTheEnvironmentHas) {
  LaunchConfig config = Config(2);
  config.max_nodes = 2;
  config.rdzv.lease = seconds(7);
  const NodeNetwork network{.address = "10.0.0.2"};
  const Assignment assignment{.round = Round(4),
                              .group_rank = GroupRank(1),
                              .group_world_size = 2,
                              .first_rank = Rank(2),
                              .world_size = 4,
                              .first_role_rank = 1,
                              .role_world_size = 3,
                              .restart_count = 1,
                              .master_addr = "10.0.0.1",
                              .master_port = 4711};
  const EnvVars vars = WorkerEnvironment({}, config, assignment, LocalRank(1), {.network = network});
  const auto env = Decode({vars.begin(), vars.end()});
  ASSERT_TRUE(env.ok()) << env.status();
  const RoundOffer offer = OfferFor(config, assignment, LocalRank(1), network);
  EXPECT_EQ(offer, (RoundOffer{.round = env->round,
                               .rank = env->rank,
                               .group_rank = env->group_rank,
                               .world_size = env->world_size,
                               .group_world_size = env->group_world_size,
                               .role_rank = env->role_rank,
                               .role_world_size = env->role_world_size,
                               .restart_count = env->restart_count,
                               .master_addr = env->master_addr,
                               .master_port = env->master_port,
                               .node_addr = env->node_addr,
                               .lease = env->lease}));
  EXPECT_EQ(offer.rank, Rank(3));
  EXPECT_EQ(offer.lease, seconds(7));
  EXPECT_TRUE(DecodeRoundOffer(Encode(offer)));
}

TEST(WorkerEnvironmentTest, DecodesToTheAssignmentOfTheWorker) {
  const EnvMap vars = Make({{"PATH", "/bin"}, {"RANK", "99"}}, Config(2));
  const auto env = Decode(vars);
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
}

TEST(WorkerEnvironmentTest, NamesTheNoticeFileAndTheHeartbeatFileIfThereIsOne) {
  const EnvMap outer = {{"DDPRUN_NOTICE_FILE", "/tmp/of_the_job_around_this_one"},
                        {"DDPRUN_HEARTBEAT_FILE", "/tmp/of_the_job_around_this_one"}};
  const LaunchConfig config = Config(2);
  EXPECT_EQ(Make({outer.begin(), outer.end()}, config).count("DDPRUN_NOTICE_FILE"), 0u);
  EXPECT_EQ(Make({outer.begin(), outer.end()}, config).count("DDPRUN_HEARTBEAT_FILE"), 0u);
  const EnvVars vars = WorkerEnvironment({outer.begin(), outer.end()}, config, {}, LocalRank(0),
                                         {.notice_file = "/tmp/notice", .heartbeat_file = "/proc/7/fd/8"});
  EXPECT_THAT(vars, testing::Contains(testing::Pair("DDPRUN_NOTICE_FILE", "/tmp/notice")));
  EXPECT_THAT(vars, testing::Contains(testing::Pair("DDPRUN_HEARTBEAT_FILE", "/proc/7/fd/8")));
}

TEST(WorkerEnvironmentTest, WorkersIgnoreTheSignalsThatOnlyANoticeUses) {
  LaunchConfig config = Config(2);
  EXPECT_THAT(SignalsIgnoredByWorkers(config), testing::IsEmpty());
  config.preempt_signals = {{SIGTERM, seconds(1)}, {SIGUSR2, seconds(1)}};
  EXPECT_THAT(SignalsIgnoredByWorkers(config), testing::ElementsAre(SIGUSR2));
}

// Checks the full set of variables, torchrun's and ours, because scripts may depend on whether a variable is
// set.
TEST(WorkerEnvironmentTest, SetsExactlyTheDocumentedVariables) {
  EXPECT_EQ(Make({}, Config(2)), (EnvMap{{"LOCAL_RANK", "1"},
                                         {"RANK", "3"},
                                         {"GROUP_RANK", "1"},
                                         {"ROLE_RANK", "3"},
                                         {"ROLE_NAME", "trainer"},
                                         {"LOCAL_WORLD_SIZE", "2"},
                                         {"WORLD_SIZE", "4"},
                                         {"GROUP_WORLD_SIZE", "2"},
                                         {"ROLE_WORLD_SIZE", "4"},
                                         {"MASTER_ADDR", "10.0.0.1"},
                                         {"MASTER_PORT", "4711"},
                                         {"TORCHELASTIC_RESTART_COUNT", "1"},
                                         {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                         {"TORCHELASTIC_RUN_ID", "j"},
                                         {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                         {"TORCHELASTIC_ERROR_FILE", "/logs/error.json"},
                                         {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
                                         {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                                         {"NCCL_ASYNC_ERROR_HANDLING", "1"},
                                         {"OMP_NUM_THREADS", "1"},
                                         {"DDPRUN_ROUND", "4"},
                                         {"DDPRUN_AGENT_SOCKET", "sock"}}));
}

TEST(WorkerEnvironmentTest, LibrariesGetDefaultsThatTheUserMayOverride) {
  EXPECT_EQ(Make({}, Config(2)).at("OMP_NUM_THREADS"), "1");
  EXPECT_EQ(Make({}, Config(1), 0).count("OMP_NUM_THREADS"), 0u);
  EXPECT_EQ(Make({{"OMP_NUM_THREADS", "6"}}, Config(2)).at("OMP_NUM_THREADS"), "6");
  EXPECT_EQ(Make({{"OMP_NUM_THREADS", ""}}, Config(2)).at("OMP_NUM_THREADS"), "")
      << "an empty variable counts as set";
  for (const char* name : {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"})
    EXPECT_EQ(Make({{name, "0"}}, Config(2)).at(name), "0");
}

TEST(WorkerEnvironmentTest, SetsTheNodesNetworkOnlyForMultiNodeJobs) {
  LaunchConfig config = Config(1);
  const WorkerPlaces places = {.network = {.address = "10.0.0.2", .interface = "eth1"}};
  const auto make = [&](const EnvVars& base) {
    const EnvVars vars = WorkerEnvironment(base, config, {}, LocalRank(0), places);
    return EnvMap(vars.begin(), vars.end());
  };
  config.max_nodes = 2;
  EXPECT_EQ(make({}).at("DDPRUN_NODE_ADDR"), "10.0.0.2");
  EXPECT_EQ(make({}).at("GLOO_SOCKET_IFNAME"), "eth1");
  EXPECT_EQ(make({}).at("DDPRUN_LEASE_MS"), "5000");
  EXPECT_EQ(make({{"GLOO_SOCKET_IFNAME", "ib0"}}).at("GLOO_SOCKET_IFNAME"), "ib0");
  EXPECT_EQ(make({{"DDPRUN_NODE_ADDR", "10.9.9.9"}}).at("DDPRUN_NODE_ADDR"), "10.0.0.2");
  config.max_nodes = 1;
  EXPECT_EQ(make({{"DDPRUN_NODE_ADDR", "10.9.9.9"}}).count("DDPRUN_NODE_ADDR"), 0u);
  EXPECT_EQ(make({}).count("GLOO_SOCKET_IFNAME"), 0u);
}

TEST(WorkerEnvironmentTest, PassesSignalsAgentStoreAndTimerFile) {
  LaunchConfig config = Config(2);
  config.signals_to_handle = {SIGUSR1, SIGTERM};
  config.agent_store = false;
  const EnvMap vars = Make({}, config);
  EXPECT_EQ(vars.at("TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGUSR1,SIGTERM");
  EXPECT_EQ(vars.at("TORCHELASTIC_USE_AGENT_STORE"), "False");
  const EnvVars timed =
      WorkerEnvironment({}, config, {}, LocalRank(0), {.timer_file = "/tmp/watchdog_timer_1"});
  EXPECT_EQ(EnvMap(timed.begin(), timed.end()).at("TORCHELASTIC_TIMER_FILE"), "/tmp/watchdog_timer_1");
}

TEST(WorkerEnvironmentTest, ConfigFileVariablesOverrideTheLaunchersButNotTheJobs) {
  setenv("DDPRUN_TEST_KEPT", "kept", 1);
  setenv("DDPRUN_TEST_CHANGED", "old", 1);
  LaunchConfig config = Config(2);
  config.program_env = {
      {"DDPRUN_TEST_CHANGED", "new"}, {"DDPRUN_TEST_ADDED", ""}, {"RANK", "9"}, {"OMP_NUM_THREADS", "5"}};
  const EnvVars base = BaseEnvironment(config);
  const EnvMap vars = Make(base, config);
  EXPECT_EQ(vars.at("DDPRUN_TEST_KEPT"), "kept");
  EXPECT_EQ(vars.at("DDPRUN_TEST_CHANGED"), "new");
  EXPECT_EQ(vars.at("DDPRUN_TEST_ADDED"), "");
  EXPECT_EQ(vars.at("RANK"), "3");
  EXPECT_EQ(vars.at("OMP_NUM_THREADS"), "5");
  EXPECT_FALSE(LimitsOmpThreads(base, config));
}

TEST(WorkerEnvironmentTest, DoesNotInheritVariablesOfAnOuterJob) {
  const EnvMap vars = Make({{"DDPRUN_LOCAL_RANK", "7"}, {"DDPRUN_AGENT_SOCKET", "outer"}}, Config(2));
  EXPECT_EQ(vars.count("DDPRUN_LOCAL_RANK"), 0u);
  EXPECT_EQ(vars.at("DDPRUN_AGENT_SOCKET"), "sock");
}

class VirtualLocalRankTest : public testing::Test {
 protected:
  VirtualLocalRankTest() { config_.virtual_local_rank = true; }
  LaunchConfig config_ = Config(2);
};

TEST_F(VirtualLocalRankTest, EachWorkerSeesItsOwnDeviceAsTheFirst) {
  const struct {
    EnvVars base;
    EnvMap want;  // for local rank 1
  } kCases[] = {
      {{}, {{"CUDA_VISIBLE_DEVICES", "1"}}},
      {{{"CUDA_VISIBLE_DEVICES", "6,3,1"}}, {{"CUDA_VISIBLE_DEVICES", "3"}}},
      {{{"CUDA_VISIBLE_DEVICES", "GPU-a, MIG-b "}}, {{"CUDA_VISIBLE_DEVICES", "MIG-b"}}},
      {{{"HIP_VISIBLE_DEVICES", "5,4"}, {"CUDA_VISIBLE_DEVICES", "0"}},
       {{"CUDA_VISIBLE_DEVICES", "4"}, {"HIP_VISIBLE_DEVICES", "4"}}},
      {{{"HIP_VISIBLE_DEVICES", ""}, {"CUDA_VISIBLE_DEVICES", "2,7"}},
       {{"CUDA_VISIBLE_DEVICES", "7"}, {"HIP_VISIBLE_DEVICES", ""}}},
  };
  for (const auto& c : kCases) {
    EXPECT_TRUE(CheckVirtualDevices(c.base, config_).ok());
    const EnvMap vars = Make(c.base, config_);
    for (const auto& [name, value] : c.want) EXPECT_EQ(vars.at(name), value) << name;
    EXPECT_EQ(vars.at("LOCAL_RANK"), "0");
    const auto env = Decode(vars);
    ASSERT_TRUE(env.ok()) << env.status();
    EXPECT_EQ(env->local_rank, LocalRank(1));
  }
}

TEST_F(VirtualLocalRankTest, RejectsADeviceListThatIsTooShort) {
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}) {
    const absl::Status status = CheckVirtualDevices({{name, "3"}}, config_);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(std::string(name) + "=3 is 1, for 2 workers"),
                                                     HasSubstr("--nproc-per-node")));
  }
  config_.virtual_local_rank = false;
  EXPECT_TRUE(CheckVirtualDevices({{"CUDA_VISIBLE_DEVICES", "3"}}, config_).ok());
}

}  // namespace
}  // namespace ddprun
