#include "launcher/config/launch_config.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/config/testing/machine.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(LaunchConfigTest, ParsesNodes) {
  const LaunchConfig fixed = Machine().Launch({"--nnodes=3", "--rdzv-backend=c10d"});
  EXPECT_EQ(fixed.min_nodes, 3);
  EXPECT_EQ(fixed.max_nodes, 3);
  const LaunchConfig range = Machine().Launch({"--nnodes=2:5", "--rdzv-backend=c10d"});
  EXPECT_EQ(range.min_nodes, 2);
  EXPECT_EQ(range.max_nodes, 5);
}

TEST(LaunchConfigTest, CountsLocalWorkers) {
  Machine cpu_only;
  Machine with_gpus;
  with_gpus.gpus = 4;
  EXPECT_EQ(cpu_only.Launch({}).num_local_workers, 1);
  EXPECT_EQ(cpu_only.Launch({"--nproc-per-node=3"}).num_local_workers, 3);
  EXPECT_EQ(cpu_only.Launch({"--nproc-per-node=cpu"}).num_local_workers, 6);
  EXPECT_EQ(cpu_only.Launch({"--nproc-per-node=auto"}).num_local_workers, 6);
  EXPECT_EQ(with_gpus.Launch({"--nproc-per-node=auto"}).num_local_workers, 4);
  EXPECT_EQ(with_gpus.Launch({"--nproc-per-node=gpu"}).num_local_workers, 4);
  for (const char* text : {"--nproc-per-node=auto", "--nproc-per-node=gpu"})
    EXPECT_TRUE(with_gpus.Launch({text}).counts_gpus) << text;
  EXPECT_FALSE(with_gpus.Launch({"--nproc-per-node=4"}).counts_gpus);
  EXPECT_FALSE(cpu_only.Launch({"--nproc-per-node=auto"}).counts_gpus);
  with_gpus.env["CUDA_VISIBLE_DEVICES"] = "2,0";
  EXPECT_EQ(with_gpus.Launch({"--nproc-per-node=gpu"}).num_local_workers, 2);
  with_gpus.files["job.yaml"] = "env: {CUDA_VISIBLE_DEVICES: '1'}\n";
  EXPECT_EQ(with_gpus.Launch({"--config=job.yaml", "--nproc-per-node=gpu"}).num_local_workers, 1)
      << "the value in the workers' environment must apply";
  const auto none = cpu_only.Parse({"--nproc-per-node=gpu", "/bin/true"});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(none.status().message(), "--nproc-per-node=gpu: Cuda is not available. (no driver)");
  for (const absl::Status& why :
       {absl::DeadlineExceededError("no answer"), absl::CancelledError("SIGTERM")}) {
    const Machine hanging = {.gpus = why};
    for (const char* text : {"--nproc-per-node=auto", "--nproc-per-node=gpu"}) {
      EXPECT_EQ(hanging.Parse({text, "/bin/true"}).status(),
                absl::Status(why.code(), absl::StrCat(text, ": ", why.message())));
    }
  }
  const auto xpu = cpu_only.Parse({"--nproc-per-node=xpu", "/bin/true"});
  EXPECT_EQ(xpu.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(xpu.status().message()), HasSubstr("Xpu is not available."));
}

TEST(LaunchConfigTest, OneNodeWithoutAnEndpointIsStandalone) {
  for (const auto& args :
       std::vector<std::vector<std::string>>{{},
                                             {"--standalone"},
                                             {"--nnodes=1"},
                                             {"--standalone", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1"},
                                             {"--standalone", "--nnodes=1:4"},
                                             {"--standalone", "--rdzv-id=job"},
                                             {"--rdzv-backend=static"}}) {
    const LaunchConfig config = Machine().Launch(args);
    EXPECT_TRUE(config.standalone);
    EXPECT_EQ(config.backend, Backend::kC10d);
    EXPECT_EQ(config.hosting, Hosting::kHere);
    EXPECT_EQ(config.endpoint, (Endpoint{"localhost", 0}));
    EXPECT_EQ(config.run_id, "uuid");
    EXPECT_EQ(config.max_nodes, 1);
  }
}

TEST(LaunchConfigTest, StaticWithAMasterAddressOrPort) {
  const LaunchConfig port = Machine().Launch({"--master-port=1234"});
  EXPECT_FALSE(port.standalone);
  EXPECT_EQ(port.backend, Backend::kStatic);
  EXPECT_EQ(port.endpoint, (Endpoint{"127.0.0.1", 1234}));
  EXPECT_EQ(port.run_id, "none");
  const LaunchConfig second =
      Machine().Launch({"--nnodes=2", "--node-rank=1", "--master-addr=node0", "--rdzv-id=j"});
  EXPECT_EQ(second.endpoint, (Endpoint{"node0", 29500}));
  EXPECT_EQ(second.hosting, Hosting::kElsewhere);
  EXPECT_EQ(second.node_rank, 1);
  EXPECT_EQ(second.run_id, "j");
  EXPECT_EQ(Machine().Launch({"--nnodes=2", "--master-addr=node0"}).hosting, Hosting::kHere);
  EXPECT_EQ(Machine().Launch({"--nnodes=2", "--node-rank=0", "--rdzv-endpoint=[::1]:7"}).endpoint,
            (Endpoint{"::1", 7}));
  EXPECT_EQ(Machine().Launch({"--nnodes=1:2", "--master-addr=a"}).backend, Backend::kStatic);
  for (const char* address : {"fd00::7", "[fd00::7]"}) {
    EXPECT_EQ(Machine().Launch({"--nnodes=2", "--node-rank=1", "--master-addr", address}).endpoint,
              (Endpoint{"fd00::7", 29500}));
  }
  EXPECT_EQ(Machine().Launch({"--nnodes=2", "--rdzv-conf=timeout=7"}).rdzv.join_timeout, seconds(7));
}

TEST(LaunchConfigTest, C10dEndpointAndHosting) {
  const LaunchConfig config =
      Machine().Launch({"--nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=node0", "--rdzv-id=j"});
  EXPECT_EQ(config.backend, Backend::kC10d);
  EXPECT_EQ(config.endpoint, (Endpoint{"node0", 29400}));
  EXPECT_EQ(config.hosting, Hosting::kByAddress);
  EXPECT_EQ(config.run_id, "j");
  const std::vector<std::string> args = {"--rdzv-backend=c10d", "--rdzv-endpoint=a:5"};
  EXPECT_EQ(Machine().Launch(args).endpoint, (Endpoint{"a", 5}));
  EXPECT_EQ(Machine().Launch({"--rdzv-backend=c10d"}).endpoint, (Endpoint{"localhost", 29400}));
  EXPECT_EQ(Machine().Launch({"--rdzv-backend=c10d", "--rdzv-conf=is_host=true"}).hosting, Hosting::kHere);
  EXPECT_EQ(Machine().Launch({"--rdzv-backend=c10d", "--rdzv-conf=is_host=0"}).hosting, Hosting::kElsewhere);
  EXPECT_EQ(Machine().Launch({"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"}).hosting, Hosting::kHere);
}

TEST(LaunchConfigTest, ARangeOfNodesWithoutAnEndpointHostsTheCoordinatorHere) {
  const LaunchConfig config =
      Machine().Launch({"--nnodes=1:4", "--nproc-per-node=8", "--local-addr=10.0.0.1"});
  EXPECT_FALSE(config.standalone);
  EXPECT_EQ(config.backend, Backend::kC10d);
  EXPECT_EQ(config.hosting, Hosting::kHere);
  EXPECT_EQ(config.endpoint, (Endpoint{"10.0.0.1", 0}));
  EXPECT_EQ(config.run_id, "uuid");
  EXPECT_EQ(config.max_nodes, 4);
  EXPECT_EQ(Machine().Launch({"--nnodes=1:4", "--rdzv-id=größe"}).run_id, "größe");
}

TEST(LaunchConfigTest, ParsesRendezvousSettings) {
  EXPECT_EQ(Machine().Launch({}).rdzv, RdzvConf());
  const LaunchConfig config =
      Machine().Launch({"--rdzv-conf",
                        "join_timeout=7, last_call_timeout=8,close_timeout=9,heartbeat_timeout=10,"
                        "keep_alive_interval=11,keep_alive_max_attempt=12,read_timeout=13,is_host=Yes,"
                        "lease_ms=1500,timeout=14,store_type=tcp,colour=red"});
  EXPECT_EQ(config.rdzv, (RdzvConf{.join_timeout = seconds(7),
                                   .last_call_timeout = seconds(8),
                                   .read_timeout = seconds(13),
                                   .lease = milliseconds(1500),
                                   .is_host = true,
                                   .timeout = seconds(14)}));
  EXPECT_THAT(config.warnings, ElementsAre(HasSubstr("unknown key colour")));
}

// torchrun does not parse the values of keys that have no effect.
TEST(LaunchConfigTest, InvalidValuesWithoutEffectCauseWarnings) {
  const std::vector<std::string> c10d = {"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1"};
  const std::vector<std::string> two_static = {"--nnodes=2", "--node-rank=0"};
  const struct {
    std::vector<std::string> args;
    const char* conf;
    const char* warning;
  } kCases[] = {
      {c10d, "timeout=soon", "timeout=soon: expected whole seconds, more than 0; ignored"},
      {c10d, "close_timeout=0", "close_timeout=0: expected"},
      {c10d, "keep_alive_max_attempt=x", "keep_alive_max_attempt=x: expected"},
      {two_static, "last_call_timeout=x", "last_call_timeout=x: expected"},
      {two_static, "is_host=maybe", "is_host=maybe: expected true or false"},
      {two_static, "store_type=file", "store_type=file: expected tcp"},
  };
  for (const auto& c : kCases) {
    std::vector<std::string> args = c.args;
    args.push_back(absl::StrCat("--rdzv-conf=", c.conf, ",join_timeout=7"));
    const LaunchConfig config = Machine().Launch(args);
    EXPECT_THAT(config.warnings, ElementsAre(HasSubstr(c.warning))) << c.conf;
    EXPECT_EQ(config.rdzv.join_timeout, seconds(7)) << c.conf;
  }
}

// PyTorch's own tests pass a value with literal quotes to torchrun.
TEST(LaunchConfigTest, QuotesAreParsedAsPartOfRendezvousSettings) {
  const LaunchConfig config =
      Machine().Launch({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1",
                        "--rdzv-conf='join_timeout=5,last_call_timeout=1,timeout=5'"});
  RdzvConf as_torchrun_reads_them;
  as_torchrun_reads_them.last_call_timeout = seconds(1);
  EXPECT_EQ(config.rdzv, as_torchrun_reads_them);
  EXPECT_THAT(config.warnings,
              ElementsAre(HasSubstr("unknown key 'join_timeout (the quotes are part of the value"),
                          HasSubstr("timeout=5': expected whole seconds")));
}

// Users write large values to mean "forever"; the coordinator accepts at most two years.
TEST(LaunchConfigTest, ClampsDurationsToOneYear) {
  constexpr Duration kYear = seconds(365 * 24 * 3600);
  const LaunchConfig config =
      Machine().Launch({"--rdzv-conf=join_timeout=999999999,last_call_timeout=2147483647,timeout=999999999",
                        "--shutdown-timeout=999999999", "--snapshot-timeout=1e12", "--min-uptime=999999999"});
  EXPECT_EQ(config.rdzv.join_timeout, kYear);
  EXPECT_EQ(config.rdzv.last_call_timeout, kYear);
  EXPECT_EQ(config.rdzv.timeout, kYear);
  EXPECT_EQ(config.shutdown_timeout, kYear);
  EXPECT_EQ(config.rules.snapshot_timeout, kYear);
  EXPECT_EQ(config.rules.min_uptime, kYear);
}

TEST(LaunchConfigTest, ParsesWorkerAndOutputOptions) {
  const LaunchConfig plain = Machine().Launch({});
  EXPECT_EQ(plain.role, "default");
  EXPECT_EQ(plain.rules.max_restarts, 0);
  EXPECT_EQ(plain.shutdown_timeout, seconds(30));
  EXPECT_EQ(plain.log_dir, "");
  EXPECT_EQ(plain.redirects, StreamChoice());
  EXPECT_THAT(plain.program.argv, ElementsAre("/bin/true"));
  EXPECT_THAT(plain.warnings, IsEmpty());
  Machine machine;
  machine.env = {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5"}};
  EXPECT_EQ(machine.Launch({}).shutdown_timeout, seconds(5));
  const LaunchConfig full =
      machine.Launch({"--shutdown-timeout=7", "--role=r", "--max-restarts=3", "--log-dir=/dev/null", "-r",
                      "0:1,2:3", "-t2", "--monitor-interval=0.01"});
  EXPECT_EQ(full.shutdown_timeout, seconds(7));
  EXPECT_EQ(full.role, "r");
  EXPECT_EQ(full.rules.max_restarts, 3);
  EXPECT_EQ(full.log_dir, "/dev/null");
  EXPECT_EQ(full.redirects.For(LocalRank(0)), (Streams{.out = true, .err = false}));
  EXPECT_EQ(full.redirects.For(LocalRank(1)), Streams());
  EXPECT_EQ(full.redirects.For(LocalRank(2)), (Streams{.out = true, .err = true}));
  EXPECT_EQ(full.tee.For(LocalRank(9)), (Streams{.out = false, .err = true}));
}

TEST(LaunchConfigTest, ParsesJobRulesAndExitCodes) {
  EXPECT_EQ(Machine().Launch({}).rules, JobRules{.quorum = Quorum::kNone});
  EXPECT_EQ(Machine().Launch({}).exit_codes, ExitCodes::kTorchrun);
  const LaunchConfig config =
      Machine().Launch({"--nnodes=2:6", "--rdzv-backend=c10d", "--node-unit=2", "--scale-up=at-snapshot",
                        "--snapshot-timeout=1.5", "--min-uptime=10", "--max-restarts-without-progress=0",
                        "--exit-codes=scheduler"});
  EXPECT_EQ(config.rules, (JobRules{.node_unit = 2,
                                    .scale_up = ScaleUp::kAtSnapshot,
                                    .snapshot_timeout = milliseconds(1500),
                                    .min_uptime = seconds(10),
                                    .max_restarts_without_progress = 0}));
  EXPECT_EQ(config.exit_codes, ExitCodes::kScheduler);
  EXPECT_EQ(Machine().Launch({"--scale-up=never"}).rules.scale_up, ScaleUp::kNever);
  EXPECT_EQ(Machine().Launch({"--hang-timeout=20"}).rules.hang_timeout, HangTimeout::Of(seconds(20)));
  EXPECT_EQ(Machine().Launch({"--hang-timeout=0"}).rules.hang_timeout, HangTimeout::Off());
  EXPECT_EQ(Machine().Launch({"--hang-timeout=auto"}).rules.hang_timeout, HangTimeout::Auto());
  EXPECT_EQ(Machine().Launch({"--on-hang=restart"}).rules.on_hang, OnHang::kRestart);
}

TEST(LaunchConfigTest, ReadsExpectedHostsFromSlurm) {
  const std::vector<std::string> args = {"--nnodes=1:3", "--rdzv-backend=c10d"};
  Machine machine;
  EXPECT_THAT(machine.Launch(args).expected_hosts, IsEmpty());
  machine.env = {{"SLURM_JOB_NODELIST", "n[1-3].cluster.example"}};
  EXPECT_THAT(machine.Launch(args).expected_hosts, ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(machine.Launch({"--nnodes=2", "--rdzv-backend=c10d"}).expected_hosts, IsEmpty())
      << "a list with more hosts than --nnodes allows must be ignored";
  machine.env["SLURM_STEP_NODELIST"] = "n[1-2]";
  EXPECT_THAT(machine.Launch(args).expected_hosts, ElementsAre("n1", "n2"));
  machine.env["SLURM_STEP_NODELIST"] = "n1";
  EXPECT_THAT(machine.Launch(args).expected_hosts, IsEmpty()) << "a list with only one host must be ignored";
  machine.env["SLURM_STEP_NODELIST"] = "n[1-";
  const LaunchConfig config = machine.Launch(args);
  EXPECT_THAT(config.expected_hosts, IsEmpty());
  EXPECT_THAT(config.warnings, ElementsAre(HasSubstr("SLURM_STEP_NODELIST is ignored")));
}

TEST(LaunchConfigTest, CommandsThatLaunchNoJob) {
  const Machine m;
  EXPECT_TRUE(std::holds_alternative<ShowHelp>(*m.Parse({"-h"})));
  EXPECT_TRUE(std::holds_alternative<ShowHelp>(*m.Parse({"--nnodes=x", "--help"})));
  EXPECT_TRUE(std::holds_alternative<ShowHelp>(*m.Parse({"--config=none.yaml", "--help"})));
  EXPECT_TRUE(std::holds_alternative<ShowVersion>(*m.Parse({"--version"})));
  Machine with_a_variable;
  with_a_variable.env = {{"PET_CONFIG", "none.yaml"}};
  EXPECT_TRUE(std::holds_alternative<StoreConfig>(*with_a_variable.Parse({"--store-only"})));
  EXPECT_EQ(std::get<ShowCompletion>(*m.Parse({"--print-completion", "zsh"})).shell, "zsh");
  const auto store = m.Parse({"--store-only", "--host=::", "--port=7"});
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(std::get<StoreConfig>(*store).host, "::");
  EXPECT_EQ(std::get<StoreConfig>(*store).port, 7);
  EXPECT_EQ(std::get<StoreConfig>(*m.Parse({"--store-only"})).port, 0);
}

TEST(LaunchConfigTest, EnvironmentAndCommandLineOverrideTheFile) {
  Machine machine;
  machine.files = {{"job.yaml",
                    "nproc_per_node: 2\n"
                    "max-restarts: 3\n"
                    "role: file\n"
                    "standalone: true\n"
                    "duplicate-stdout-filters: [loss, \"a,b\"]\n"
                    "program: /bin/false\n"
                    "args: [--epochs, 3]\n"
                    "env: {NCCL_DEBUG: INFO}\n"}};
  machine.env = {{"PET_MAX_RESTARTS", "4"}, {"PET_ROLE", "variable"}, {"PET_STANDALONE", "0"}};
  const auto command = machine.Parse({"--config", "job.yaml", "--role=line", "--master-port=1"});
  ASSERT_TRUE(command.ok()) << command.status();
  const auto& config = std::get<LaunchConfig>(*command);
  EXPECT_EQ(config.num_local_workers, 2);
  EXPECT_EQ(config.rules.max_restarts, 4);
  EXPECT_EQ(config.role, "line");
  EXPECT_FALSE(config.standalone);
  EXPECT_THAT(config.stdout_filters, ElementsAre("loss", "a,b"));
  EXPECT_THAT(config.program.argv, ElementsAre("/bin/false", "--epochs", "3"));
  EXPECT_THAT(config.program_env, ElementsAre(Pair("NCCL_DEBUG", "INFO")));
  EXPECT_THAT(machine.Launch({"--config=job.yaml"}).program.argv, ElementsAre("/bin/true"))
      << "the program on the command line must replace the program and the arguments in the file";
  machine.env = {{"PET_CONFIG", "job.yaml"}};
  EXPECT_EQ(machine.Launch({}).role, "file");
  machine.files["job.yaml"] = "\nnnodes: few\n";
  EXPECT_THAT(machine.UsageError({"/bin/true"}), HasSubstr("job.yaml:2: nnodes=few: expected N or MIN:MAX"));
}

TEST(LaunchConfigTest, BadValuesAreUsageErrorsThatNameTheOption) {
  const std::string file = absl::StrCat(testing::TempDir(), "/a_file");
  std::ofstream(file) << "x";
  const struct {
    std::vector<std::string> args;
    std::string words;
  } kBad[] = {
      {{"--nnodes=0"}, "--nnodes=0: expected N or MIN:MAX"},
      {{"--nnodes=-1"}, "--nnodes=-1"},
      {{"--nnodes=x"}, "--nnodes=x"},
      {{"--nnodes=3:2"}, "--nnodes=3:2"},
      {{"--nnodes=1:2:3"}, "--nnodes=1:2:3"},
      {{"--nnodes="}, "--nnodes="},
      {{"--nnodes=99999999999"}, "--nnodes=99999999999"},
      {{"--nproc-per-node=0"}, "--nproc-per-node=0: expected a number"},
      {{"--nproc-per-node=two"}, "Unsupported nproc_per_node value: two (expected a number"},
      {{"--nproc-per-node=1000000"}, "--nproc-per-node=1000000"},
      {{"--nnodes=1000000", "--nproc-per-node=10000"}, "1000000 nodes with 10000 workers each exceed"},
      {{"--rdzv-backend=ours"},
       "expected static, c10d or etcd. Other names are Python plug-ins, which cannot"},
      {{"--start-method=vfork"}, "--start-method=vfork: expected spawn, fork or forkserver"},
      {{"--numa-binding=core"}, "--numa-binding=core: expected node, socket, exclusive or core-complex"},
      {{"--numa-binding="}, "--numa-binding=: expected node"},
      {{"--signals-to-handle=SIGTERM,SIGKILL"}, "signals that request termination, not SIGKILL"},
      {{"--metrics-handler=mine"}, "expected null or console"},
      {{"--event-log-handler=mine"}, "expected null or console; other names are Python plug-ins"},
      {{"--logs-specs=mine"}, "a Python plug-in cannot be loaded here"},
      {{"--local-ranks-filter=0,x"}, "expected a comma-separated list of integers, e.g. 0,1,2"},
      {{"--local-ranks-filter=0,"}, "a comma-separated list of integers"},
      {{"--log-max-size=100"}, "--log-max-size=100: expected bytes, 4K or more"},
      {{"--log-max-size=M"}, "--log-max-size=M"},
      {{"--log-max-size=-1G"}, "--log-max-size=-1G"},
      {{"--log-max-size=9999999999G"}, "--log-max-size=9999999999G"},
      {{"--print-completion=fish"}, "--print-completion=fish: expected bash, zsh or tcsh"},
      {{"--config=none.yaml"}, "--config=none.yaml: No such file or directory"},
      {{"--config="}, "--config=: expected a file"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=h:x"}, "--rdzv-endpoint=h:x: expected a port"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=h:65536"}, "a port from 0 to 65535"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=:1"}, "HOST:PORT"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=::1"}, "brackets"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=[::1"}, "']'"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=[::1]x"}, "':'"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=h/x"}, "HOST:PORT"},
      {{"--rdzv-backend=c10d", "--rdzv-endpoint=h:0", "--nnodes=2"}, "--rdzv-endpoint=h:0: expected a port"},
      {{"--rdzv-endpoint=h"}, "a port as well"},
      {{"--rdzv-id="}, "--rdzv-id="},
      {{"--rdzv-conf=x"}, "--rdzv-conf=x: x: expected KEY=VALUE"},
      {{"--rdzv-conf=join_timeout="}, "KEY=VALUE"},
      {{"--rdzv-conf==3"}, "KEY=VALUE"},
      {{"--rdzv-conf=join_timeout=0"}, "join_timeout=0: expected whole seconds, more than 0"},
      {{"--rdzv-conf=read_timeout=1.5"}, "read_timeout=1.5: expected whole seconds"},
      {{"--nnodes=2", "--rdzv-conf=timeout=-2"}, "timeout=-2: expected whole seconds"},
      {{"--rdzv-conf=lease_ms=x"}, "lease_ms=x: expected whole milliseconds"},
      {{"--rdzv-conf=lease_ms=99"}, "lease_ms=99: expected whole milliseconds, at least 100"},
      {{"--rdzv-conf='read_timeout=1,last_call_timeout=1'"},
       "last_call_timeout=1': expected whole seconds, more than 0 (the quotes are part of the value"},
      {{"--rdzv-conf=is_host=maybe"}, "is_host=maybe: expected true or false"},
      {{"--rdzv-conf=store_type=file"}, "store_type=file"},
      {{"--standalone", "--nnodes=2"}, "--standalone is for one node, but --nnodes=2"},
      {{"--nnodes=2", "--node-rank=2"}, "--node-rank=2: expected a rank from 0 to 1"},
      {{"--nnodes=2", "--node-rank=-1"}, "--node-rank=-1"},
      {{"--master-port=x"}, "--master-port=x: expected a port"},
      {{"--master-port=70000"}, "--master-port=70000"},
      {{"--nnodes=2", "--master-port=0"}, "--master-port=0: expected a port other than 0"},
      {{"--nnodes=2", "--node-rank=0", "--rdzv-endpoint=h:0"}, "--rdzv-endpoint=h:0: expected a port other"},
      {{"--master-port="}, "--master-port=: expected a port"},
      {{"--master-port=x", "--standalone"}, "--master-port=x: expected a port"},
      {{"--master-port=x", "--rdzv-backend=c10d"}, "--master-port=x: expected a port"},
      {{"--node-rank=x"}, "--node-rank=x: expected a rank from 0 to nodes - 1"},
      {{"--master-port=1", "--master-addr="}, "--master-addr=: expected one host name or address"},
      {{"--master-port=1", "--master-addr=a b"}, "--master-addr=a b: expected one host name or address"},
      {{"--nnodes=2", "--master-addr=h:1"},
       "--master-addr=h:1: expected a host name or address, without a port"},
      {{"--nnodes=2", "--master-addr=[h]"}, "--master-addr=[h]: expected an IPv6 address in the brackets"},
      {{"--nnodes=2", "--master-addr=[::1]:1"}, "and nothing after them"},
      {{"--max-restarts=-1"}, "--max-restarts=-1: expected a whole number"},
      {{"--max-restarts=x"}, "--max-restarts=x: expected a whole number, 0 or more"},
      {{"--max-restarts="}, "--max-restarts=: expected a whole number, 0 or more"},
      {{"--max-restarts=9999999999"}, "expected a whole number, 0 or more, at most 2147483647"},
      {{"--rdzv-conf=join_timeout=9999999999"}, "expected whole seconds, more than 0, at most 2147483647"},
      {{"--monitor-interval=0"}, "--monitor-interval=0: expected seconds"},
      {{"--monitor-interval=nan"}, "--monitor-interval=nan"},
      {{"--shutdown-timeout=-1"}, "--shutdown-timeout=-1"},
      {{"--shutdown-timeout="}, "--shutdown-timeout=: expected whole seconds"},
      {{"--node-unit=0"}, "--node-unit=0: expected a whole number, 1 or more"},
      {{"--node-unit=2"}, "--nnodes=1:1 must be multiples of 2"},
      {{"--nnodes=2:5", "--rdzv-backend=c10d", "--node-unit=2"}, "--nnodes=2:5 must be"},
      {{"--nnodes=1:4", "--rdzv-backend=c10d", "--node-unit=2"}, "--nnodes=1:4 must be"},
      {{"--scale-up=later"}, "--scale-up=later: expected immediate, at-snapshot or never"},
      {{"--snapshot-timeout=x"}, "--snapshot-timeout=x: expected seconds"},
      {{"--hang-timeout=x"}, "--hang-timeout=x: expected auto, at least 5 seconds, or 0"},
      {{"--hang-timeout=4.9"}, "--hang-timeout=4.9: expected auto, at least 5 seconds, or 0"},
      {{"--on-hang=kill"}, "--on-hang=kill: expected report or restart"},
      {{"--min-uptime=-1"}, "--min-uptime=-1: expected seconds"},
      {{"--min-uptime=inf"}, "--min-uptime=inf: expected seconds"},
      {{"--min-uptime=nan"}, "--min-uptime=nan: expected seconds"},
      {{"--max-restarts-without-progress=-1"}, "expected a whole number, 0 or more"},
      {{"--exit-codes=slurm"}, "--exit-codes=slurm: expected torchrun or scheduler"},
      {{"--role="}, "--role=: expected a name"},
      {{"--role=\xff"}, ": expected a name in UTF-8"},
      {{"--role=" + std::string(257, 'r')}, ": expected a name in UTF-8, at most 256 bytes"},
      {{"--rdzv-backend=c10d",
        "--rdzv-id=gr\xf6\xdf"
        "e"},
       ": expected a name in UTF-8"},
      {{"--log-dir", file}, "expected a directory"},
      {{"-r", "4"}, "--redirects=4: expected 0, 1, 2 or 3"},
      {{"-r", "0:1,"}, "--redirects=0:1,"},
      {{"-t", "1:x"}, "--tee=1:x"},
      {{"-t", ""}, "--tee="},
      {{"-m", "--no-python"}, "cannot be used together"},
      {{"--port=1"}, "--port can be used only with --store-only"},
      {{"--host=h"}, "--host can be used only with --store-only"},
      {{"--store-only"}, "--store-only runs no program"},
  };
  for (const auto& bad : kBad) {
    std::vector<std::string> args = bad.args;
    args.emplace_back("/bin/true");
    EXPECT_THAT(Machine().UsageError(args), HasSubstr(bad.words));
  }
  EXPECT_THAT(Machine().UsageError({}), HasSubstr("no program given"));
  EXPECT_THAT(Machine().UsageError({"--run-path", ""}), HasSubstr("the program name is empty"));
  EXPECT_THAT(Machine().UsageError({"--store-only", "--port=-1"}), HasSubstr("--port=-1"));
  EXPECT_THAT(Machine().UsageError({"--store-only", "--host="}), HasSubstr("--host="));
  Machine machine;
  machine.env = {{"PET_MAX_RESTARTS", "many"}};
  EXPECT_THAT(machine.UsageError({"/bin/true"}), HasSubstr("PET_MAX_RESTARTS=many: expected"));
  machine.env = {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon"}};
  EXPECT_THAT(machine.UsageError({"/bin/true"}), HasSubstr("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=soon"));
  machine.env = {{"TORCHELASTIC_HEALTH_CHECK_PORT", "http"}};
  EXPECT_THAT(machine.UsageError({"/bin/true"}),
              HasSubstr("TORCHELASTIC_HEALTH_CHECK_PORT=http: expected a port"));
}

TEST(LaunchConfigTest, AMissingProgramIsNotAUsageError) {
  const auto command = Machine().Parse({"/no/such/program"});
  EXPECT_EQ(command.status().code(), absl::StatusCode::kNotFound);
}

TEST(LaunchConfigTest, RejectsUnspecifiedAddressesForOtherNodes) {
  for (const char* host : {"0.0.0.0", "0", "[::]", "[::ffff:0.0.0.0]"}) {
    const std::string endpoint = absl::StrCat("--rdzv-endpoint=", host, ":29400");
    for (const char* nodes : {"--nnodes=1", "--nnodes=2", "--nnodes=1:4"}) {
      EXPECT_THAT(Machine().UsageError({"--rdzv-backend=c10d", nodes, endpoint, "/bin/true"}),
                  AllOf(HasSubstr(endpoint), HasSubstr("only an address to listen on: give the name")));
    }
    EXPECT_EQ(Machine().Launch({"--rdzv-backend=c10d", endpoint, "--rdzv-conf=is_host=1"}).hosting,
              Hosting::kHere)
        << "is_host=1 must allow an unspecified address";
    EXPECT_THAT(Machine().UsageError({"--nnodes=2", "--node-rank=1", endpoint, "/bin/true"}),
                HasSubstr("only an address to listen on"));
  }
  EXPECT_THAT(Machine().UsageError({"--nnodes=2", "--node-rank=1", "--master-addr=0.0.0.0", "/bin/true"}),
              HasSubstr("--master-addr=0.0.0.0: expected an address that nodes can connect to"));
  EXPECT_EQ(Machine().Launch({"--master-addr=0.0.0.0", "--master-port=1"}).endpoint,
            (Endpoint{"0.0.0.0", 1}));
  EXPECT_THAT(Machine().UsageError({"--nnodes=1:2", "--local-addr=::", "/bin/true"}),
              HasSubstr("--local-addr=::: expected an address of this node"));
}

TEST(LaunchConfigTest, LinkLocalAddressesNeedAnInterface) {
  EXPECT_THAT(Machine().UsageError({"--rdzv-backend=c10d", "--rdzv-endpoint=[fe80::1]:2", "/bin/true"}),
              HasSubstr("--rdzv-endpoint=[fe80::1]:2: expected the interface of a link-local address, as in "
                        "fe80::1%eth0"));
  EXPECT_THAT(Machine().UsageError({"--nnodes=2", "--node-rank=1", "--master-addr=fe80::1", "/bin/true"}),
              HasSubstr("--master-addr=fe80::1: expected the interface"));
  EXPECT_EQ(Machine().Launch({"--rdzv-backend=c10d", "--rdzv-endpoint=[fe80::1%eth0]:2"}).endpoint,
            (Endpoint{"fe80::1%eth0", 2}));
}

TEST(ProcessInputsTest, DescribeThisProcess) {
  const ProcessInputs real = InputsOfThisProcess([](absl::string_view) {});
  EXPECT_GE(real.num_cpus, 1);
  EXPECT_EQ(real.cwd[0], '/');
  EXPECT_EQ(real.ddprun_dir[0], '/');
  const std::string uuid = real.make_uuid();
  EXPECT_THAT(uuid,
              testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_NE(uuid, real.make_uuid());
}

}  // namespace
}  // namespace ddprun
