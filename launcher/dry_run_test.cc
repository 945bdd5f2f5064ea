#include "launcher/dry_run.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class DryRunTest : public testing::Test {
 protected:
  DryRunTest() {
    config_.run_id = "j1";
    config_.program = {.argv = {"/usr/bin/python3", "-u", "train.py", "--n=${local_rank}", "a b"},
                       .first_arg = 3,
                       .name = "train.py"};
  }
  std::string Text() {
    facts_.cpus.resize(config_.num_local_workers);
    return DryRunText(config_, facts_);
  }

  LaunchConfig config_;
  DryRunFacts facts_{.launcher_env = {{"PATH", "/bin"}, {"ROLE_NAME", "default"}},
                     .base = {{"PATH", "/bin"}, {"ROLE_NAME", "default"}},
                     .temporary_dir = "/tmp"};
};

TEST_F(DryRunTest, ShowsAStandaloneNode) {
  config_.backend = Backend::kC10d;
  config_.hosting = Hosting::kHere;
  config_.standalone = true;
  config_.num_local_workers = 1;
  config_.rules.max_restarts = 3;
  EXPECT_EQ(Text(), R"(# ddprun --dry-run: nothing is started.
#
# job       j1, role default, 3 restarts
# size      1 node, with 1 worker on this node
# endpoint  none: this is the only node, and it hosts its own coordinator
# store     worker store in the launcher on node 0
# signals   forwarded to the workers: SIGTERM, SIGINT, SIGHUP, SIGQUIT; SIGKILL follows after 30 s
# files     in /tmp/torchelastic_<random>/j1_<random>/attempt_0/<local rank>
# assumed   values in <angle brackets> are chosen at launch

# local rank 0: rank 0 of 1, stdout to the console, stderr to the console
env \
    'DDPRUN_AGENT_SOCKET=<socket of the agent>' \
    DDPRUN_ROUND=0 \
    GROUP_RANK=0 \
    GROUP_WORLD_SIZE=1 \
    LOCAL_RANK=0 \
    LOCAL_WORLD_SIZE=1 \
    MASTER_ADDR=127.0.0.1 \
    'MASTER_PORT=<a free port>' \
    NCCL_ASYNC_ERROR_HANDLING=1 \
    RANK=0 \
    ROLE_RANK=0 \
    ROLE_WORLD_SIZE=1 \
    'TORCHELASTIC_ERROR_FILE=/tmp/torchelastic_<random>/j1_<random>/attempt_0/0/error.json' \
    TORCHELASTIC_MAX_RESTARTS=3 \
    TORCHELASTIC_RESTART_COUNT=0 \
    TORCHELASTIC_RUN_ID=j1 \
    TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT \
    TORCHELASTIC_USE_AGENT_STORE=True \
    TORCH_NCCL_ASYNC_ERROR_HANDLING=1 \
    WORLD_SIZE=1 \
    /usr/bin/python3 -u train.py --n=0 'a b'
)");
}

TEST_F(DryRunTest, ShowsTheRanksAndStorePortOfAStaticNode) {
  config_.backend = Backend::kStatic;
  config_.hosting = Hosting::kElsewhere;
  config_.min_nodes = config_.max_nodes = 3;
  config_.node_rank = 2;
  config_.endpoint = {.host = "node1", .port = 29500};
  config_.num_local_workers = 2;
  const std::string text = Text();
  EXPECT_THAT(text, AllOf(HasSubstr("endpoint  node1:29500; another node hosts the coordinator"),
                          HasSubstr("this is node 2 of 3, and each node has 2 workers"),
                          HasSubstr("# local rank 1: rank 5 of 6"), HasSubstr("MASTER_ADDR=node1 "),
                          HasSubstr("MASTER_PORT=29500 "), HasSubstr("OMP_NUM_THREADS=1 ")));
  EXPECT_THAT(text, Not(HasSubstr("<a free port>")));
}

TEST_F(DryRunTest, ShowsElasticNodesWithAnEndpoint) {
  config_.backend = Backend::kC10d;
  config_.hosting = Hosting::kByAddress;
  config_.min_nodes = 2;
  config_.max_nodes = 4;
  config_.endpoint = {.host = "node1", .port = 29400};
  const auto expect = [this](std::optional<bool> hosts, const std::string& who, const std::string& address) {
    facts_.hosts = hosts;
    EXPECT_THAT(Text(), AllOf(HasSubstr("size      2 to 4 nodes, with 1 worker on this node"),
                              HasSubstr(absl::StrCat("node1:29400; ", who, " hosts the coordinator")),
                              HasSubstr("this is node 0 of 2, and each node has 1 worker;"),
                              HasSubstr(absl::StrCat("MASTER_ADDR=", address))));
  };
  expect(true, "this node (node1)", "node1 ");
  expect(false, "another node (node1)", "<address of node 0>'");
  expect(std::nullopt, "the node named node1", "<address of node 0>'");
  config_.local_addr = "10.0.0.7";
  expect(std::nullopt, "the node named node1", "10.0.0.7 ");
  config_.local_addr = "eth1";
  facts_.interface_address = "10.0.0.8";
  expect(std::nullopt, "the node named node1", "10.0.0.8 ");
  config_.local_addr.clear();
  config_.hosting = Hosting::kHere;
  config_.endpoint = {.host = "", .port = 0};
  EXPECT_THAT(Text(), AllOf(HasSubstr("a free port of this node, which hosts the coordinator"),
                            HasSubstr("MASTER_ADDR=<address of this node>'")));
}

TEST_F(DryRunTest, ShowsTheRegisterOfAJob) {
  config_.backend = Backend::kEtcd;
  config_.hosting = Hosting::kElsewhere;
  config_.min_nodes = config_.max_nodes = 2;
  config_.etcd_endpoints = {{"e1", 2379}, {"fd00::2", 7}};
  EXPECT_THAT(Text(), AllOf(HasSubstr("is on etcd at e1:2379, [fd00::2]:7; one of the nodes hosts"),
                            HasSubstr("MASTER_ADDR=<address of node 0>'")));
}

TEST_F(DryRunTest, ShowsCpusFilesAndStreams) {
  config_.num_local_workers = 2;
  config_.log_dir = "/logs";
  config_.redirects = *StreamChoice::Parse("0:1,1:3");
  config_.tee = *StreamChoice::Parse("0:2");
  config_.console_ranks = {0};
  facts_.cpus = {{0, 1, 2}, {3}};
  config_.agent_store = false;
  std::string text = Text();
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("in the worker with rank 0"), HasSubstr("in /logs/j1_<random>/attempt_0/<local rank>"),
            HasSubstr("stdout to stdout.log, stderr to stderr.log and the console\ntaskset -c 0-2 env "),
            HasSubstr("stdout to stdout.log, stderr to stderr.log\ntaskset -c 3 env "),
            HasSubstr("TORCHELASTIC_USE_AGENT_STORE=False")));
  config_.log_dir = "/dev/null";
  EXPECT_THAT(Text(), AllOf(HasSubstr("files     none"), HasSubstr("TORCHELASTIC_ERROR_FILE= "),
                            HasSubstr("stdout to the console, stderr to the console"),
                            HasSubstr("stdout to nowhere, stderr to nowhere")));
}

TEST_F(DryRunTest, StatesThatNoSignalsAreForwarded) {
  config_.signals_to_handle.clear();
  EXPECT_THAT(
      Text(),
      HasSubstr("# signals   none are forwarded: a signal to this launcher kills all workers immediately\n"));
}

// A shell that executes the text runs only the workers' commands, even if names contain line breaks.
TEST_F(DryRunTest, NamesCannotBreakOutOfComments) {
  config_.run_id = "a/b\nreboot";
  config_.role = "r\r\nreboot";
  config_.log_dir = "/logs\nreboot";
  const std::string text = Text();
  EXPECT_THAT(text,
              AllOf(HasSubstr("# job       a/b?reboot, role r??reboot, 0 restarts\n"),
                    HasSubstr("# files     in /logs?reboot/a_b?reboot_<random>/attempt_0/<local rank>\n"),
                    HasSubstr("'TORCHELASTIC_RUN_ID=a/b\nreboot'")));
  for (const absl::string_view line : absl::StrSplit(text.substr(0, text.find("\nenv ")), '\n'))
    EXPECT_TRUE(line.empty() || line[0] == '#') << line;
}

TEST_F(DryRunTest, ShowsOnlyVariablesThatDiffer) {
  config_.num_local_workers = 2;
  config_.virtual_local_rank = true;
  config_.watchdog_fifo = "";
  facts_.launcher_env.emplace_back("DDPRUN_AGENT_SOCKET", "of an outer job");
  facts_.launcher_env.emplace_back("DDPRUN_LOCAL_RANK", "3");
  facts_.launcher_env.emplace_back("KEPT", "same");
  facts_.base = facts_.launcher_env;
  facts_.base.emplace_back("ADDED", "it's new");
  config_.virtual_local_rank = false;
  EXPECT_THAT(Text(), AllOf(HasSubstr("env \\\n    -u DDPRUN_LOCAL_RANK \\\n    'ADDED=it'\\''s new' \\\n"),
                            HasSubstr("TIMER_FILE=/tmp/watchdog_timer_<random>'"), Not(HasSubstr("KEPT")),
                            Not(HasSubstr("PATH="))));
  config_.virtual_local_rank = true;
  config_.pass_local_rank = true;
  EXPECT_THAT(Text(), AllOf(HasSubstr("CUDA_VISIBLE_DEVICES=1 "), HasSubstr("DDPRUN_LOCAL_RANK=1 "),
                            HasSubstr("train.py --local-rank=1 --n=1 'a b'\n")));
}

TEST(DryRunFactsTest, DescribeThisMachine) {
  LaunchConfig config;
  config.num_local_workers = 2;
  config.program_env = {{"ADDED", "1"}};
  config.endpoint.host = "localhost";
  const auto facts = GatherDryRunFacts(config, [](absl::string_view) {});
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->base.size(), facts->launcher_env.size() + 1);
  EXPECT_EQ(facts->hosts, true);
  EXPECT_EQ(facts->cpus.size(), 2u);
}

TEST(DryRunFactsTest, FailWhereALaunchWouldFail) {
  LaunchConfig config;
  config.num_local_workers = 2;
  config.virtual_local_rank = true;
  config.program_env = {{"CUDA_VISIBLE_DEVICES", "0"}};
  EXPECT_THAT(std::string(GatherDryRunFacts(config, [](absl::string_view) {}).status().message()),
              HasSubstr("CUDA_VISIBLE_DEVICES=0 is 1"));
}

}  // namespace
}  // namespace ddprun
