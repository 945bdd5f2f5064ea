#include <csignal>
#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/config/testing/machine.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;

TEST(WorkerOptionsTest, SelectsTheKindOfProgram) {
  const Machine m;
  EXPECT_THAT(m.Launch({"--module"}).program.typed, ElementsAre("--module", "/bin/true"));
  EXPECT_THAT(m.Launch({"--no-python"}).program.typed, ElementsAre("--no-python", "/bin/true"));
  EXPECT_THAT(m.Launch({"--run-path"}).program.typed, ElementsAre("--run-path", "/bin/true"));
  EXPECT_THAT(m.Launch({"--run-path", "--no-python", "-m"}).program.typed,
              ElementsAre("--run-path", "/bin/true"))
      << "--run-path must take precedence";
  for (const char* method : {"spawn", "fork", "forkserver"}) {
    EXPECT_THAT(m.Launch({"--start-method", method}).program.argv, ElementsAre("/bin/true"));
  }
}

TEST(WorkerOptionsTest, PassesTheLocalRankOnRequest) {
  Machine m;
  EXPECT_FALSE(m.Launch({}).pass_local_rank);
  EXPECT_FALSE(m.Launch({"--use-env"}).pass_local_rank);
  EXPECT_TRUE(m.Launch({"--pass-local-rank"}).pass_local_rank);
  m.env = {{"PET_PASS_LOCAL_RANK", "1"}};
  EXPECT_TRUE(m.Launch({}).pass_local_rank);
  EXPECT_FALSE(m.Launch({"--use_env"}).pass_local_rank);
}

TEST(WorkerOptionsTest, VirtualLocalRank) {
  Machine m;
  EXPECT_FALSE(m.Launch({}).virtual_local_rank);
  EXPECT_TRUE(m.Launch({"--virtual-local-rank"}).virtual_local_rank);
  m.env = {{"PET_VIRTUAL_LOCAL_RANK", "1"}};
  EXPECT_TRUE(m.Launch({}).virtual_local_rank);
}

TEST(WorkerOptionsTest, NumaBinding) {
  Machine m;
  m.env = {{"PET_NUMA_BINDING", "socket"}};  // not read, as in torchrun
  EXPECT_EQ(m.Launch({}).numa_binding, std::nullopt);
  EXPECT_EQ(m.Launch({"--numa-binding=node"}).numa_binding, NumaBinding::kNode);
  EXPECT_EQ(m.Launch({"--numa_binding", "socket"}).numa_binding, NumaBinding::kSocket);
  EXPECT_EQ(m.Launch({"--numa-binding=exclusive"}).numa_binding, NumaBinding::kExclusive);
  EXPECT_EQ(m.Launch({"--numa-binding=core-complex"}).numa_binding, NumaBinding::kCoreComplex);
}

TEST(WorkerOptionsTest, SignalsToHandle) {
  const Machine m;
  EXPECT_THAT(m.Launch({}).signals_to_handle, ElementsAre(SIGTERM, SIGINT, SIGHUP, SIGQUIT));
  EXPECT_THAT(m.Launch({"--signals-to-handle= SIGUSR1 ,SIGTERM,SIGUSR1"}).signals_to_handle,
              ElementsAre(SIGUSR1, SIGTERM));
  const LaunchConfig config = m.Launch({"--signals-to-handle=SIGTREM,SIGINT,TERM,"});
  EXPECT_THAT(config.signals_to_handle, ElementsAre(SIGINT));
  EXPECT_THAT(config.warnings,
              ElementsAre(HasSubstr("no signal \"SIGTREM\"; it is ignored. Did you mean SIGTERM?"),
                          HasSubstr("\"TERM\"; it is ignored. Did you mean SIGTERM?"), HasSubstr("\"\"")));
  EXPECT_THAT(m.Launch({"--signals-to-handle=sigint,hup"}).warnings,
              ElementsAre(HasSubstr("Did you mean SIGINT?"), HasSubstr("Did you mean SIGHUP?")));
}

TEST(WorkerOptionsTest, PreemptSignal) {
  const auto signals = [](const LaunchConfig& config) {
    std::vector<std::pair<int, int64_t>> all;
    for (const PreemptSignal& signal : config.preempt_signals)
      all.emplace_back(signal.signo, ToMillis(signal.left));
    return all;
  };
  const Machine m;
  EXPECT_THAT(signals(m.Launch({})), IsEmpty());
  const LaunchConfig config = m.Launch({"--preempt-signal=USR1, SIGTERM@2.5"});
  EXPECT_THAT(signals(config), ElementsAre(Pair(SIGUSR1, 60000), Pair(SIGTERM, 2500)));
  EXPECT_THAT(config.signals_to_handle, ElementsAre(SIGINT, SIGHUP, SIGQUIT)) << "a signal has one meaning";
  EXPECT_THAT(signals(m.Launch({"--preempt-signal=SIGUSR2@1e30"})), ElementsAre(Pair(SIGUSR2, Gt(1000))));
}

TEST(WorkerOptionsTest, BadPreemptSignals) {
  const std::pair<std::vector<std::string>, std::string> kCases[] = {
      {{"--preempt-signal=SIGKILL"}, "--preempt-signal=SIGKILL: \"SIGKILL\": expected SIGTERM, SIGINT"},
      {{"--preempt-signal="}, "expected SIGTERM, SIGINT"},
      {{"--preempt-signal=USR1@"}, "\"USR1@\": expected the seconds until this node goes away after the @"},
      {{"--preempt-signal=USR1@0"}, "more than 0, such as SIGUSR1@60"},
      {{"--preempt-signal=USR1@nan"}, "more than 0"},
      {{"--preempt-signal=USR1,SIGUSR1@5"}, "\"SIGUSR1@5\": expected each signal once"},
      {{"--preempt-signal=SIGTERM", "--signals-to-handle=SIGTERM"},
       "expected no signal that ends the job: --signals-to-handle=SIGTERM"},
  };
  for (auto [args, error] : kCases) {
    args.emplace_back("train");
    EXPECT_THAT(Machine().UsageError(args), HasSubstr(error));
  }
}

TEST(WorkerOptionsTest, UninterruptibleStateTimeout) {
  constexpr char kVariable[] = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";
  Machine m;
  EXPECT_EQ(m.Launch({}).uninterruptible_timeout, std::nullopt);
  m.env = {{kVariable, "2.5"}};
  EXPECT_THAT(m.Launch({}).uninterruptible_timeout, Optional(milliseconds(2500)));
  for (const char* off : {"0", "-3", "", "nan"}) {
    m.env = {{kVariable, off}};
    EXPECT_EQ(m.Launch({}).uninterruptible_timeout, std::nullopt) << off;
  }
  m.env = {{kVariable, "soon"}};
  const LaunchConfig config = m.Launch({});
  EXPECT_EQ(config.uninterruptible_timeout, std::nullopt);
  EXPECT_THAT(config.warnings, ElementsAre(HasSubstr("=soon is ignored: expected seconds")));
}

TEST(RendezvousOptionsTest, HostOfTheWorkerStore) {
  Machine m;
  EXPECT_TRUE(m.Launch({}).agent_store);
  m.env = {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}};
  EXPECT_FALSE(m.Launch({}).agent_store);
  EXPECT_FALSE(m.Launch({"--rdzv-backend=c10d"}).agent_store);
  EXPECT_TRUE(m.Launch({"--master-port=1"}).agent_store)
      << "the static backend must always use the agent's store";
  m.env = {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0"}};
  EXPECT_TRUE(m.Launch({}).agent_store);
}

TEST(RendezvousOptionsTest, IdenticalWorkersVariableHasNoEffect) {
  Machine m;
  const LaunchConfig without = m.Launch({"--nproc-per-node=2"});
  m.env = {{"TORCH_ELASTIC_WORKER_IDENTICAL", "1"}, {"USE_LIBUV", "0"}};
  const LaunchConfig with = m.Launch({"--nproc-per-node=2"});
  EXPECT_EQ(with.num_local_workers, without.num_local_workers);
  EXPECT_EQ(with.program, without.program);
  EXPECT_EQ(with.agent_store, without.agent_store);
  EXPECT_THAT(with.warnings, IsEmpty());
}

TEST(OutputOptionsTest, PrefixTemplate) {
  Machine m;
  EXPECT_EQ(m.Launch({}).line_prefix_template, "");
  m.env = {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${rank}>"}};
  EXPECT_EQ(m.Launch({}).line_prefix_template, "<${rank}>");
  EXPECT_EQ(m.Launch({"--log-line-prefix-template="}).line_prefix_template, "<${rank}>");
  EXPECT_EQ(m.Launch({"--log-line-prefix-template", "- ${hostname} "}).line_prefix_template,
            "- ${hostname} ");
}

TEST(OutputOptionsTest, LocalRanksFilter) {
  const Machine m;
  EXPECT_EQ(m.Launch({}).console_ranks, std::nullopt);
  EXPECT_EQ(m.Launch({"--local-ranks-filter="}).console_ranks, std::nullopt);
  EXPECT_THAT(m.Launch({"--local_ranks_filter=2, 0,2"}).console_ranks, Optional(ElementsAre(0, 2)));
}

TEST(OutputOptionsTest, DuplicateFilters) {
  Machine m;
  EXPECT_THAT(m.Launch({}).stdout_filters, IsEmpty());
  const LaunchConfig config =
      m.Launch({"--duplicate-stdout-filters=apple,a,,b", "--duplicate_stderr_filters", "x,,,y,"});
  EXPECT_THAT(config.stdout_filters, ElementsAre("apple", "a,b"));
  EXPECT_THAT(config.stderr_filters, ElementsAre("x,", "y", ""));
  m.env = {{"PET_DUPLICATE_STDOUT_FILTERS", "loss,acc"}, {"PET_DUPLICATE_STDERR_FILTERS", ""}};
  EXPECT_THAT(m.Launch({}).stdout_filters, ElementsAre("loss", "acc"));
  EXPECT_THAT(m.Launch({}).stderr_filters, ElementsAre(""))
      << "an empty value must give one empty filter, which matches every line";
}

TEST(OutputOptionsTest, LogMaxSize) {
  const Machine m;
  EXPECT_EQ(m.Launch({}).max_log_bytes, 0);
  EXPECT_EQ(m.Launch({"--log-max-size=0"}).max_log_bytes, 0);
  EXPECT_EQ(m.Launch({"--log-max-size=4096"}).max_log_bytes, 4096);
  EXPECT_EQ(m.Launch({"--log-max-size=64k"}).max_log_bytes, 64 << 10);
  EXPECT_EQ(m.Launch({"--log-max-size=500M"}).max_log_bytes, 500 << 20);
  EXPECT_EQ(m.Launch({"--log-max-size=2G"}).max_log_bytes, int64_t{2} << 30);
}

TEST(OutputOptionsTest, LogsSpecs) {
  EXPECT_THAT(Machine().Launch({"--logs-specs=default"}).warnings, IsEmpty());
}

TEST(ObserverOptionsTest, EventLogHandler) {
  const Machine m;
  EXPECT_EQ(m.Launch({}).event_handler, EventHandler::kNull);
  EXPECT_EQ(m.Launch({"--event-log-handler=dynamic_rendezvous"}).event_handler, EventHandler::kNull);
  EXPECT_EQ(m.Launch({"--event-log-handler=console"}).event_handler, EventHandler::kConsole);
}

TEST(ObserverOptionsTest, MetricsHandler) {
  const Machine m;
  EXPECT_EQ(m.Launch({}).metrics_handler, MetricsHandler::kNull);
  EXPECT_EQ(m.Launch({"--metrics-handler=null"}).metrics_handler, MetricsHandler::kNull);
  EXPECT_EQ(m.Launch({"--metrics-handler=console"}).metrics_handler, MetricsHandler::kConsole);
}

TEST(ObserverOptionsTest, EnvironmentVariables) {
  Machine m;
  const LaunchConfig none = m.Launch({});
  EXPECT_EQ(none.own_error_file, "");
  EXPECT_EQ(none.watchdog_fifo, std::nullopt);
  EXPECT_EQ(none.health_check_port, std::nullopt);
  m.env = {{"TORCHELASTIC_ERROR_FILE", "/e.json"},
           {"TORCHELASTIC_TIMER_FILE", "/t"},
           {"TORCHELASTIC_HEALTH_CHECK_PORT", "8080"}};
  EXPECT_EQ(m.Launch({}).own_error_file, "/e.json");
  EXPECT_THAT(m.Launch({}).health_check_port, Optional(8080));
  EXPECT_EQ(m.Launch({}).watchdog_fifo, std::nullopt)
      << "TORCHELASTIC_TIMER_FILE alone must not enable the watchdog";
  m.env["TORCHELASTIC_ENABLE_FILE_TIMER"] = "1";
  EXPECT_THAT(m.Launch({}).watchdog_fifo, Optional(std::string("/t")));
  m.env.erase("TORCHELASTIC_TIMER_FILE");
  EXPECT_THAT(m.Launch({}).watchdog_fifo, Optional(std::string()));
  m.env["TORCHELASTIC_ENABLE_FILE_TIMER"] = "true";
  EXPECT_EQ(m.Launch({}).watchdog_fifo, std::nullopt)
      << "only the value 1 must enable the watchdog, as in torchrun";
}

TEST(DryRunOptionTest, IsOffByDefault) {
  EXPECT_FALSE(Machine().Launch({}).dry_run);
  EXPECT_TRUE(Machine().Launch({"--dry-run"}).dry_run);
}

}  // namespace
}  // namespace ddprun
