// Tests that ddprun exits with an error on bad input. The error states the problem, the value and a remedy.
// The exit code is 2 for usage errors and 1 otherwise.
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fault/testing/fake_peer.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using Words = std::vector<std::string>;

struct Case {
  Args args;  // arguments of ddprun; DIR stands for the test's directory
  int code;
  Words words;  // texts expected on stderr; DIR stands for the test's directory
  Environment env = {};
};

std::string Replace(std::string text, const std::string& directory) {
  for (size_t at; (at = text.find("DIR")) != std::string::npos;) text.replace(at, 3, directory);
  return text;
}

// Runs all cases in parallel, since some cases wait for a timeout.
void Expect(const std::vector<Case>& cases, const std::string& directory = "") {
  std::vector<std::unique_ptr<Process>> processes;
  for (const Case& c : cases) {
    Args argv = {DdprunPath()};
    for (const std::string& arg : c.args) argv.push_back(Replace(arg, directory));
    processes.push_back(std::make_unique<Process>(argv, Stdio::kPipes, c.env));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(testing::PrintToString(cases[i].args));
    EXPECT_EQ(processes[i]->Wait(), ProcessEnd{.code = cases[i].code});
    EXPECT_THAT(processes[i]->err(), HasSubstr("ddprun"));
    for (const std::string& words : cases[i].words) {
      EXPECT_THAT(processes[i]->err(), HasSubstr(Replace(words, directory)));
    }
    EXPECT_THAT(processes[i]->out(), IsEmpty());
  }
}

TEST(BadInputTest, Flags) {
  const std::string elastic = "--rdzv-backend=c10d";
  std::vector<Case> cases = {
      {{"--nnodes=0", "true"}, 2, {"--nnodes=0: ", "N or MIN:MAX"}},
      {{"--nnodes=3:2", "true"}, 2, {"--nnodes=3:2: ", "MIN <= MAX"}},
      {{"--nnodes=two", "true"}, 2, {"--nnodes=two: ", "such as 2 or 1:4"}},
      {{"--nnodes=1:2:3", "true"}, 2, {"--nnodes=1:2:3: "}},
      {{"--nproc-per-node=0", "true"}, 2, {"--nproc-per-node=0: ", "auto, gpu or cpu"}},
      {{"--nproc-per-node=many", "true"}, 2, {"--nproc-per-node=many: ", "a number from 1"}},
      {{"--nproc-per-node=1000000", "true"}, 2, {"--nproc-per-node=1000000: "}},
      {{"--rdzv-backend=etcd", "true"}, 2, {"--rdzv-id=none: ", "a new one for each job"}},
      {{"--rdzv-backend=", "true"}, 2, {"--rdzv-backend=: ", "static, c10d or etcd"}},
      {{elastic, "--rdzv-endpoint=host:70000", "true"}, 2, {"--rdzv-endpoint=host:70000: ", "65535"}},
      {{elastic, "--rdzv-endpoint=host:web", "true"}, 2, {"--rdzv-endpoint=host:web: ", "a port"}},
      {{elastic, "--rdzv-endpoint=a b:1", "true"}, 2, {"--rdzv-endpoint=a b:1: ", "one host name"}},
      {{elastic, "--rdzv-endpoint=fe80::1:2", "true"}, 2, {"--rdzv-endpoint=fe80::1:2: ", "[ADDR]:PORT"}},
      {{elastic, "--rdzv-endpoint=0.0.0.0:1", "true"},
       2,
       {"--rdzv-endpoint=0.0.0.0:1: ", "only an address to listen on", "give the name or the address"}},
      {{elastic, "--nnodes=2", "--rdzv-endpoint=host:0", "true"}, 2, {"--rdzv-endpoint=host:0", "a port"}},
      {{elastic, "--rdzv-id=", "true"}, 2, {"--rdzv-id=: ", "a name"}},
      {{"--rdzv-conf=join_timeout=soon", "true"}, 2, {"join_timeout=soon: ", "whole seconds"}},
      {{"--rdzv-conf=join_timeout=0", "true"}, 2, {"--rdzv-conf=join_timeout=0: ", "more than 0"}},
      {{"--rdzv-conf=join_timeout", "true"}, 2, {"join_timeout: ", "KEY=VALUE"}},
      {{"--rdzv-conf=last_call_timeout=-1", "true"}, 2, {"last_call_timeout=-1: ", "more than 0"}},
      {{"--rdzv-conf=lease_ms=0.5", "true"}, 2, {"lease_ms=0.5: ", "whole milliseconds"}},
      {{"--rdzv-conf=is_host=maybe", "true"}, 2, {"is_host=maybe: ", "true or false"}},
      {{"--rdzv-conf=store_type=file", "true"}, 2, {"store_type=file: ", "tcp"}},
      {{"--standalone=1", "true"}, 2, {"--standalone takes no value"}},
      {{"--standalone", "--nnodes=2", "true"}, 2, {"--standalone is for one node", "--nnodes=2"}},
      {{"--nnodes=2", "--node-rank=2", "true"}, 2, {"--node-rank=2: ", "from 0 to 1"}},
      {{"--nnodes=2", "--node-rank=-1", "true"}, 2, {"--node-rank=-1: ", "from 0 to 1"}},
      {{"--nnodes=2", "--node-rank=x", "true"}, 2, {"--node-rank=x: "}},
      {{"--nnodes=2", "--master-addr=a/b", "true"}, 2, {"--master-addr=a/b: ", "one host name"}},
      {{"--nnodes=2", "--master-port=70000", "true"}, 2, {"--master-port=70000: ", "0 to 65535"}},
      {{"--nnodes=2", "--master-port=0", "true"}, 2, {"--master-port=0: ", "other nodes could not find it"}},
      {{"--local-addr=no.such.host.invalid", "true"},
       1,
       {"--local-addr=no.such.host.invalid", "does not resolve", "give"}},
      {{"--module", "--no-python", "true"}, 2, {"--module and --no-python cannot be used together"}},
      {{"--role=", "true"}, 2, {"--role=: ", "a name"}},
      {{"--max-restarts=-1", "true"}, 2, {"--max-restarts=-1: ", "0 or more"}},
      {{"--max-restarts=1.5", "true"}, 2, {"--max-restarts=1.5: ", "a whole number"}},
      {{"--monitor-interval=0", "true"}, 2, {"--monitor-interval=0: ", "more than 0"}},
      {{"--monitor-interval=often", "true"}, 2, {"--monitor-interval=often: ", "seconds"}},
      {{"--shutdown-timeout=-1", "true"}, 2, {"--shutdown-timeout=-1: ", "0 or more"}},
      {{"--shutdown-timeout=1m", "true"}, 2, {"--shutdown-timeout=1m: ", "whole seconds"}},
      {{"--redirects=4", "true"}, 2, {"--redirects=4: ", "LOCAL_RANK:DIGIT"}},
      {{"-r", "0:x", "true"}, 2, {"--redirects=0:x: ", "0, 1, 2 or 3"}},
      {{"--tee=both", "true"}, 2, {"--tee=both: ", "0, 1, 2 or 3"}},
      {{"--store-only", "true"}, 2, {"--store-only runs no program", "true"}},
      {{"--store-only", "--port=70000"}, 2, {"--port=70000: ", "0 to 65535"}},
      {{"--store-only", "--host="}, 2, {"--host=: ", "a host name or address"}},
      {{"--store-only", "--host=no.such.host.invalid"}, 1, {"no.such.host.invalid", "does not resolve"}},
      {{"--store-only", "--host=192.0.2.1"}, 1, {"192.0.2.1 is not an address of this host", "give"}},
      {{"--host=127.0.0.1", "true"}, 2, {"--host can be used only with --store-only"}},
      {{"--port=1", "true"}, 2, {"--port can be used only with --store-only"}},
      {{"--nnode-count=2", "true"}, 2, {"unknown option --nnode-count"}},
      {{"--nnode=2", "--max-restart=1", "--redirect"}, 2, {"--redirect needs a value"}},
      {{"--r=1", "true"}, 2, {"--r can mean ", "--redirects", "--role"}},
      {{"-x", "true"}, 2, {"unknown option -x", "--help"}},
      {{"--max-restarts"}, 2, {"--max-restarts needs a value", "--max-restarts=N"}},
      {{}, 2, {"no program given", "ddprun [options] PROGRAM"}},
      {{"true"}, 2, {"PET_NNODES=x: ", "N or MIN:MAX"}, {{"PET_NNODES", "x"}}},
      {{"true"}, 2, {"PET_STANDALONE=yes: ", "a whole number"}, {{"PET_STANDALONE", "yes"}}},
      {{"true"},
       2,
       {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=x: ", "whole seconds"},
       {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "x"}}},
  };
  for (Case& c : cases) {
    if (c.code == 2) c.words.push_back("see ddprun --help");
  }
  Expect(cases);
}

class BadFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy_file(WorkerPath(), directory_ + "/program");
    Write("program", "", 0600);
    Write("file", "text", 0600);
    Write("orphan_script", "#!/no/such/interpreter\n", 0700);
    Write("noise", std::string("\0neither a script nor a program", 31), 0700);
    std::filesystem::create_directory(directory_ + "/directory");
  }
  // Appends `text` to the file and sets the file's mode.
  void Write(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path, std::ios::app) << text;
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }
  const std::string directory_ = MakeTestDirectory();
};

TEST_F(BadFilesTest, Programs) {
  Expect(
      {
          {{"no-such-program"}, 1, {"no such program: no-such-program", "neither in ", "on PATH"}},
          {{"./no-such-program"}, 1, {"no such program: ./no-such-program"}},
          {{"no_such_script.py"}, 1, {"no such program: no_such_script.py"}},
          {{"DIR/directory"}, 1, {"DIR/directory is a directory without a __main__.py"}},
          {{"DIR/program"}, 1, {"DIR/program: permission denied", "chmod +x DIR/program"}},
          {{"--no-python", "DIR/file"}, 1, {"cannot start DIR/file: permission denied", "chmod +x"}},
          {{"--no-python", "no-such-program"}, 1, {"no such program: no-such-program", "on PATH"}},
          {{"DIR/orphan_script"}, 1, {"cannot start DIR/orphan_script", "check its #! line"}},
          {{"DIR/noise"}, 1, {"cannot start DIR/noise", "neither a program for this machine nor a script"}},
          {{"--module", "x"},
           1,
           {"PYTHON_EXEC=/no/python: no such executable"},
           {{"PYTHON_EXEC", "/no/python"}}},
      },
      directory_);
}

// No case depends on permissions, since the test may run as root.
TEST_F(BadFilesTest, LogDirectories) {
  Expect(
      {
          {{"--log-dir=DIR/file", "true"}, 2, {"--log-dir=DIR/file: ", "a directory, but this is a file"}},
          {{"--log-dir=DIR/file/below", "true"}, 1, {"--log-dir: ", "DIR/file/below", "Not a directory"}},
          {{"--log-dir=/proc/logs", "true"}, 1, {"--log-dir: ", "/proc/logs", "No such file"}},
      },
      directory_);
}

Args Join(int port, const Args& more = {}) {
  return Args{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + std::to_string(port)} +
         more + Args{"true"};
}

TEST(BadEndpointTest, EndpointsThatAreNotCoordinatorsAreReported) {
  const TakenPort refuses(TakenPort::Kind::kRefuses), silent(TakenPort::Kind::kSilent);
  const FakePeer hangs_up(""), garbage(std::string("\0\1\2\xff", 4)),
      web("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>It works!</html>"),
      other_version("HTTP/1.1 200 OK\r\n\r\n{\"service\":\"ddprun\",\"protocol\":999}");
  const Words not_ours = {"is not a ddprun coordinator", "give --rdzv-endpoint the address"};
  const auto with = [](Words words, int port) {
    words.push_back("127.0.0.1:" + std::to_string(port));
    return words;
  };
  const Args two_seconds = {"--rdzv-conf=read_timeout=2"};
  Expect({
      {{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=no.such.host.invalid:1",
        "--rdzv-conf=read_timeout=1", "true"},
       1,
       {"no.such.host.invalid does not resolve", "check --rdzv-endpoint=no.such.host.invalid:1",
        "tried for 1 s"}},
      {Join(refuses.port(), {"--rdzv-conf=read_timeout=2,is_host=false"}), 1,
       with({"no server listens at", "is the agent of the first node running", "read_timeout=SECONDS"},
            refuses.port())},
      {Join(silent.port(), two_seconds), 1, with({"did not answer", "read_timeout"}, silent.port())},
      // The default read timeout is longer than the 5 s within which a server must answer.
      {Join(silent.port()), 1, with(not_ours, silent.port())},
      {Join(hangs_up.port()), 1, with(not_ours, hangs_up.port())},
      {Join(garbage.port()), 1, with(not_ours, garbage.port())},
      {Join(web.port()), 1, with(not_ours, web.port())},
      {Join(other_version.port()), 1,
       with({"version 999", "the same ddprun on all nodes"}, other_version.port())},
  });
}

TEST(BadEndpointTest, ATorchStoreIsReported) {
  // The store exits at the end of its standard input. A terminal stays open, whereas /dev/null would end the
  // store immediately.
  Process store({StoreServerPath()}, Stdio::kTerminal);
  const std::vector<std::string> line = store.AwaitOut("");
  ASSERT_THAT(line, SizeIs(1));
  Expect({{Join(std::stoi(line[0])), 1, {"is not a ddprun coordinator", "torch TCPStore"}}});
}

TEST(BadEndpointTest, ATakenPortIsReported) {
  const TakenPort taken(TakenPort::Kind::kSilent);
  const std::string port = std::to_string(taken.port());
  const Words words = {"port " + port + " is taken", "give another port"};
  Expect({
      {{"--store-only", "--port=" + port}, 1, words},
      {{"--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port=" + port, "true"}, 1, words},
      {Join(taken.port(), {"--rdzv-conf=is_host=true"}), 1, words},
  });
}

// Starts a coordinator in a separate process, and agents of one job with different options.
class DisagreementTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::string> line = store_.AwaitOut("");
    ASSERT_THAT(line, SizeIs(1)) << store_.err();
    port_ = line[0];
  }
  std::unique_ptr<Process> Start(const Args& options) {
    return StartAgent(Args{"--rdzv-endpoint=127.0.0.1:" + port_, "--rdzv-id=j"} + options,
                      {WorkerPath(), "--exit=0"});
  }
  // Expects that an agent with the options `odd` is refused with an error that contains `words`, and that two
  // agents with the options `good` succeed, of which one joined before the refused agent.
  void ExpectRefused(const Args& good, const Args& odd, const Words& words) {
    const auto first = Start(good);
    ASSERT_THAT(first->AwaitErr("1/2 nodes joined"), SizeIs(1)) << first->err();
    const auto second = Start(odd);
    EXPECT_EQ(second->Wait(), ProcessEnd{.code = 1});
    for (const std::string& w : words) EXPECT_THAT(second->err(), HasSubstr(w));
    const auto third = Start(good);
    EXPECT_EQ(first->Wait(), ProcessEnd{.code = 0}) << first->err();
    EXPECT_EQ(third->Wait(), ProcessEnd{.code = 0}) << third->err();
  }

  Process store_{{DdprunPath(), "--store-only"}};
  std::string port_;
};

TEST_F(DisagreementTest, OnTheNumberOfNodes) {
  ExpectRefused({"--rdzv-backend=c10d", "--nnodes=2"}, {"--rdzv-backend=c10d", "--nnodes=1:3"},
                {"--nnodes=1:3, but the job has --nnodes=2:2", "start all nodes with the same options"});
}

TEST_F(DisagreementTest, OnTheNumberOfRestarts) {
  ExpectRefused({"--rdzv-backend=c10d", "--nnodes=2"},
                {"--rdzv-backend=c10d", "--nnodes=2", "--max-restarts=7"},
                {"--max-restarts=7, but the job has --max-restarts=0", "the same options"});
}

// A second agent with the same node rank on the same host counts as a new start of the first agent, and
// replaces the first agent.
TEST_F(DisagreementTest, ASecondAgentWithANodeRankReplacesTheFirstOnItsHost) {
  const Args options = {"--rdzv-backend=c10d", "--nnodes=2"};
  const auto first = Start(options + Args{"--node-rank=1"});
  ASSERT_THAT(first->AwaitErr("1/2 nodes joined"), SizeIs(1)) << first->err();
  const auto second = Start(options + Args{"--node-rank=1"});
  EXPECT_EQ(first->Wait(), ProcessEnd{.code = 1});
  EXPECT_THAT(first->err(), HasSubstr("was replaced by its new start"));
  const auto third = Start(options + Args{"--node-rank=0"});
  EXPECT_EQ(second->Wait(), ProcessEnd{.code = 0}) << second->err();
  EXPECT_EQ(third->Wait(), ProcessEnd{.code = 0}) << third->err();
  EXPECT_EQ(Field(second->out(), "rank"), 1);
  EXPECT_EQ(Field(third->out(), "rank"), 0);
}

TEST_F(DisagreementTest, TooFewNodesWithinTheJoinTimeout) {
  const auto only = Start({"--rdzv-backend=c10d", "--nnodes=2", "--rdzv-conf=join_timeout=1"});
  EXPECT_EQ(only->Wait(), ProcessEnd{.code = 1});
  for (const char* words : {"only 1 of at least 2 nodes joined within 1 s", "the same --rdzv-endpoint",
                            "--rdzv-conf=join_timeout"}) {
    EXPECT_THAT(only->err(), HasSubstr(words));
  }
  EXPECT_THAT(only->out(), Not(HasSubstr("ready")));
}

}  // namespace
}  // namespace ddprun
