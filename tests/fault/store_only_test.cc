// Tests `ddprun --store-only` and `ddpctl`, which is the same program under another name.

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "net/testing/raw_peer.h"
#include "rendezvous/client/c10d_client.h"
#include "rendezvous/client/grpc_store.h"
#include "tests/fault/testing/fake_peer.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;
using testing::UnorderedElementsAre;

// Waits for the port, which is the whole first line of stdout.
int AwaitPort(Process& store) {
  const std::vector<std::string> line = store.AwaitOut("");
  EXPECT_THAT(line, SizeIs(1)) << store.err();
  return line.empty() ? 0 : std::stoi(line[0]);
}

// Expects that clients of both protocols reach the same store.
void ExpectServes(int port) {
  const auto client = C10dClient::Connect("127.0.0.1", port, seconds(10));
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_TRUE((*client)->Set("key", "value").ok());
  const auto other = GrpcStore::Connect("127.0.0.1", port, seconds(10));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->Get("key", seconds(10)).value(), "value");
}

TEST(StoreOnlyTest, PrintsOnlyThePort) {
  AdoptOrphans();
  Process store({DdprunPath(), "--store-only"});
  const int port = AwaitPort(store);
  EXPECT_EQ(store.out(), absl::StrCat(port, "\n"));
  ExpectServes(port);
  const Traces traces = TracesOf(store.mark());
  ASSERT_THAT(traces.ports, UnorderedElementsAre(Pair(testing::_, port)));
  store.Signal(SIGTERM);
  EXPECT_EQ(store.Wait(), ProcessEnd{.code = 0}) << store.err();
  EXPECT_EQ(store.out(), absl::StrCat(port, "\n"));
  EXPECT_THAT(store.err(), HasSubstr("the store is shutting down: received SIGTERM"));
  EXPECT_THAT(LeftOf(traces, store.mark()), IsEmpty());

  // The port can be reused immediately.
  Process next({DdprunPath(), "--store-only", absl::StrCat("--port=", port)});
  EXPECT_EQ(AwaitPort(next), port) << next.err();
  ExpectServes(port);
}

// The store logs a line for each rejected client.
TEST(StoreOnlyTest, AnUnreadStderrBlocksNoClient) {
  // Swaps the streams, since a test can hold only stdout.
  Process store(
      {"/bin/sh", "-c", "exec 3>&1 1>&2 2>&3 3>&-; exec \"$@\"", "sh", DdprunPath(), "--store-only"});
  store.HoldOut();
  const std::vector<std::string> line = store.AwaitErr("");
  ASSERT_THAT(line, SizeIs(1));
  const int port = std::stoi(line[0]);
  for (int i = 0; i < 500; ++i) {
    RawPeer peer(port);
    ASSERT_TRUE(peer.Send(std::string(100, '\xff')));
    std::string bytes;
    ASSERT_NE(peer.ReceiveToEnd(&bytes), RawPeer::End::kStillOpen) << "client " << i;
  }
  ExpectServes(port);
}

TEST(StoreOnlyTest, ExitsWithItsParent) {
  AdoptOrphans();
  // `exit 3` keeps the shell from replacing itself with the store.
  Process parent({"/bin/sh", "-c", DdprunPath() + " --store-only; exit 3"});
  const int port = AwaitPort(parent);
  ExpectServes(port);
  const Traces traces = TracesOf(parent.mark());
  ASSERT_EQ(traces.Count("sh"), 1);
  ASSERT_EQ(traces.Count("ddprun"), 1);
  ASSERT_THAT(traces.ports, UnorderedElementsAre(Pair(testing::_, port)));
  parent.Signal(SIGKILL);
  EXPECT_EQ(parent.Wait(), ProcessEnd{.signal = SIGKILL});
  EXPECT_THAT(LeftOf(traces, parent.mark()), IsEmpty());
}

TEST(StoreOnlyTest, ExitsWhileClientsWait) {
  AdoptOrphans();
  Process store({DdprunPath(), "--store-only"});
  const auto client = C10dClient::Connect("127.0.0.1", AwaitPort(store), seconds(10));
  ASSERT_TRUE(client.ok()) << client.status();
  const Traces traces = TracesOf(store.mark());
  store.Signal(SIGINT);
  EXPECT_EQ(store.Wait(seconds(3)), ProcessEnd{.code = 0}) << store.err();
  EXPECT_TRUE(absl::IsUnavailable((*client)->Get("never", seconds(10)).status()));
  EXPECT_THAT(LeftOf(traces, store.mark()), IsEmpty());
}

class CtlTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_symlink(DdprunPath(), ddpctl_); }

  const std::string ddpctl_ = MakeTestDirectory() + "/ddpctl";
};

TEST_F(CtlTest, StatusShowsTheNodes) {
  Process store({DdprunPath(), "--store-only"});
  const std::string place = absl::StrCat("--rdzv-endpoint=127.0.0.1:", AwaitPort(store));
  Gate gate;
  std::vector<std::unique_ptr<Process>> agents;
  for (int i = 0; i < 2; ++i) {
    agents.push_back(StartAgent({"--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=job7",
                                 "--max-restarts=3", place},
                                {WorkerPath(), gate.flag()}));
  }
  for (const auto& agent : agents) ASSERT_THAT(agent->AwaitOut("ready ", 2), SizeIs(2)) << agent->err();

  Process table({ddpctl_, "status", place});
  EXPECT_EQ(table.Wait(), ProcessEnd{.code = 0}) << table.err();
  EXPECT_THAT(table.out(),
              HasSubstr("job job7: running, round 0, step -, restarts 0 of 3, nodes 2 (2 to 2)\n"));
  EXPECT_THAT(table.out(), ContainsRegex(" 127.0.0.1 +running +0-1 "));
  EXPECT_THAT(table.out(), ContainsRegex(" 127.0.0.1 +running +2-3 "));
  Process page({ddpctl_, "status", "--json", place});
  EXPECT_EQ(page.Wait(), ProcessEnd{.code = 0}) << page.err();
  EXPECT_THAT(page.out(), HasSubstr("\"run_id\":\"job7\",\"state\":\"running\""));

  gate.Open();
  for (const auto& agent : agents) EXPECT_EQ(agent->Wait(), ProcessEnd{.code = 0}) << agent->err();
}

TEST_F(CtlTest, StacksShowsWhereTheWorkersOfAllNodesAre) {
  Process store({DdprunPath(), "--store-only"});
  const std::string place = absl::StrCat("--rdzv-endpoint=127.0.0.1:", AwaitPort(store));
  const auto stacks = [&](const Args& args) {
    auto ctl = std::make_unique<Process>(Args{ddpctl_, "stacks", place} + args);
    EXPECT_TRUE(ctl->Wait(seconds(30)).has_value());
    return ctl;
  };
  EXPECT_THAT(stacks({})->err(), HasSubstr("the coordinator has no jobs"));
  Gate gate;
  std::vector<std::unique_ptr<Process>> agents;
  for (int i = 0; i < 2; ++i) {
    agents.push_back(
        StartAgent({"--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=job7", place},
                   {WorkerPath(), gate.flag()}));
  }
  for (const auto& agent : agents) ASSERT_THAT(agent->AwaitOut("ready ", 2), SizeIs(2)) << agent->err();

  // On a busy machine a process may be paused for too long at first.
  const TimePoint deadline = std::chrono::steady_clock::now() + seconds(60);
  auto native = stacks({"--native"});
  while (native->out().find("no native stacks") != std::string::npos &&
         std::chrono::steady_clock::now() < deadline)
    native = stacks({"--native"});
  EXPECT_THAT(native->out(), ContainsRegex("ranks 0-3: main thread\n(    .*\n)*    .*AwaitGate\n"));
  EXPECT_THAT(native->out(), ContainsRegex(": paused rank 0 for [0-9]+ ms, rank 1 for [0-9]+ ms\n"));
  EXPECT_THAT(stacks({"2", "--native"})->out(),
              ContainsRegex("rank 2 on [^ ]+: main thread\n|no native stacks of process"));
  EXPECT_THAT(stacks({})->out(),
              HasSubstr(": no worker runs Python; --native shows the stacks of other programs\n"));
  const auto wrong = stacks({"4"});
  EXPECT_EQ(wrong->Wait(), ProcessEnd{.code = 3});
  EXPECT_THAT(wrong->err(), HasSubstr("no rank 4 runs: the ranks of the round are 0 to 3"));

  gate.Open();
  for (const auto& agent : agents) EXPECT_EQ(agent->Wait(), ProcessEnd{.code = 0}) << agent->err();
}

TEST_F(CtlTest, ErrorsNameTheProblemAndTheRemedy) {
  const TakenPort refuses(TakenPort::Kind::kRefuses);
  const FakePeer web("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"), garbage("garbage\r\n"), hangs_up("");
  const auto at = [](const TakenPort& peer) {
    return absl::StrCat("--rdzv-endpoint=127.0.0.1:", peer.port());
  };
  const struct {
    Args args;
    int code;
    std::vector<std::string> words;
  } kCases[] = {
      {{"status", at(refuses)},
       1,
       {absl::StrCat("127.0.0.1:", refuses.port()), "refused", "--rdzv-endpoint must be"}},
      {{"status", at(web)}, 1, {"another HTTP server", "--rdzv-endpoint must be"}},
      {{"status", at(garbage)}, 1, {"no coordinator answers", "--rdzv-endpoint must be"}},
      {{"status", at(hangs_up)}, 1, {"no coordinator answers", "--rdzv-endpoint must be"}},
      {{"status", "--rdzv-endpoint=no.such.host.invalid"}, 1, {"no.such.host.invalid does not resolve"}},
      {{}, 2, {"expected a command (status", "see ddpctl --help"}},
      {{"halt"},
       2,
       {"expected a command (status, events, drain, preempt, stop, stacks or slurm-script), not \"halt\""}},
      {{"stacks", "first"}, 2, {"stacks first: expected the rank of a worker, such as 0"}},
      {{"status", "--native"}, 2, {"--native cannot be used with status"}},
      {{"status", "--rdzv-endpoint=host:x"}, 2, {"--rdzv-endpoint", "a port"}},
      {{"status", "--no-such-option"}, 2, {"no-such-option", "see ddpctl --help"}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(testing::PrintToString(c.args));
    Process ctl(Args{ddpctl_} + c.args);
    EXPECT_EQ(ctl.Wait(), ProcessEnd{.code = c.code});
    EXPECT_THAT(ctl.err(), HasSubstr("ddpctl: error: "));
    for (const std::string& words : c.words) EXPECT_THAT(ctl.err(), HasSubstr(words));
    EXPECT_THAT(ctl.out(), IsEmpty());
  }
}

}  // namespace
}  // namespace ddprun
