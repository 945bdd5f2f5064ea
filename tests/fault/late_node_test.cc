// Tests a node that does not stop its workers, and a worker that exits before the others.

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "boost/asio/executor_work_guard.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/client/grpc_link.h"
#include "rendezvous/testing/join.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"
#include "tests/fault/testing/traces.h"

namespace ddprun {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

constexpr int kLeaseMs = 1000;

// An agent that sends heartbeats, starts no workers, and never sends Ready.
class NeverReady {
 public:
  explicit NeverReady(int port) : link_(MakeGrpcLink(io_, "127.0.0.1", port)) {
    link_->Start({.on_message = [this](const proto::CoordinatorMessage& m) { Keep(m); },
                  .on_lost = [](const absl::Status&) {}});
    proto::AgentMessage message = JoinOf("never-ready", 2, "late");
    message.mutable_join()->set_stop_timeout_ms(1000);
    auto& rules = *message.mutable_join()->mutable_rules();
    rules["min_nodes"] = 1;
    rules["max_restarts"] = 1;
    rules["lease_ms"] = kLeaseMs;
    rules["max_restarts_without_progress"] = 3;  // ddprun's default
    link_->Send(message);
    thread_ = std::thread([this] { io_.run(); });
  }

  ~NeverReady() {
    boost::asio::post(io_, [this] { link_->Close(); });
    work_.reset();
    thread_.join();
  }

  // Waits for the first message of `kind`. Returns an empty message if none arrives within 30 s.
  proto::CoordinatorMessage Await(proto::CoordinatorMessage::KindCase kind) {
    std::unique_lock lock(mutex_);
    proto::CoordinatorMessage found;
    arrived_.wait_until(lock, std::chrono::system_clock::now() + seconds(30), [&] {
      const auto it = std::find_if(messages_.begin(), messages_.end(),
                                   [kind](const auto& m) { return m.kind_case() == kind; });
      if (it != messages_.end()) found = *it;
      return it != messages_.end();
    });
    return found;
  }

 private:
  void Keep(const proto::CoordinatorMessage& message) {
    const std::lock_guard lock(mutex_);
    messages_.push_back(message);
    arrived_.notify_all();
  }

  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{io_.get_executor()};
  std::unique_ptr<CoordinatorLink> link_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<proto::CoordinatorMessage> messages_;
  std::thread thread_;
};

std::unique_ptr<Process> StartJob(const std::vector<std::string>& program) {
  return StartAgent(
      {"--nnodes=1:2", "--rdzv-id=late", "--nproc-per-node=1", "--max-restarts=1", "--shutdown-timeout=1",
       "--rdzv-conf=last_call_timeout=1,lease_ms=" + std::to_string(kLeaseMs)},
      program);
}

TEST(LateNodeTest, ANodeThatDoesNotStopItsWorkersIsEvicted) {
  Gate gate;
  const std::unique_ptr<Process> agent = StartJob({WorkerPath(), gate.flag()});
  const std::vector<std::string> line = agent->AwaitErr("other nodes join with: ");
  ASSERT_THAT(line, SizeIs(1)) << agent->err();
  const std::string option = "--rdzv-endpoint=";
  const std::string endpoint = line[0].substr(line[0].find(option) + option.size());
  ASSERT_THAT(agent->AwaitOut("world_size=1 round=0"), SizeIs(1)) << agent->err();

  NeverReady late(PortOf(endpoint.substr(0, endpoint.find(' '))));
  const std::vector<std::string> ready = agent->AwaitOut("world_size=2 round=1");
  ASSERT_THAT(ready, SizeIs(1)) << agent->err();
  ASSERT_TRUE(late.Await(proto::CoordinatorMessage::kStart).has_start());
  ASSERT_EQ(kill(Field(ready[0], "pid"), SIGKILL), 0);
  ASSERT_TRUE(late.Await(proto::CoordinatorMessage::kStop).has_stop()) << agent->err();
  RecordProperty("fired", 1);

  // Heartbeats renew the node's lease, so its membership ends only when the drain timeout expires. The longer
  // timeout of the two nodes applies. In this test it is that of ddprun: the grace period of 1 s, 10 s for
  // SIGKILL, 2 s for output, and the lease.
  const proto::Dismiss dismiss = late.Await(proto::CoordinatorMessage::kDismiss).dismiss();
  EXPECT_EQ(dismiss.reason(), proto::DISMISS_REASON_EVICTED) << agent->err();
  EXPECT_THAT(dismiss.message(), HasSubstr("did not stop its workers of round 1 in time"));
  EXPECT_THAT(agent->AwaitOut("world_size=1 round=2 restart=1"), SizeIs(1)) << agent->err();
  gate.Open();
  EXPECT_EQ(agent->Wait(), ProcessEnd{.code = 0}) << agent->err();
}

TEST(LateNodeTest, AWorkerThatExitsWithZeroDoesNotEndTheRound) {
  AdoptOrphans();
  Gate gate;
  const std::string script =
      "if [ $RANK = 0 ]; then read pid rest < /proc/self/stat; echo ended $pid; exit 0; fi; exec " +
      WorkerPath() + " " + gate.flag();
  const std::unique_ptr<Process> agent = StartAgent(
      {"--standalone", "--nproc-per-node=2", "--max-restarts=1", "--no-python"}, {"/bin/sh", "-c", script});
  std::vector<std::string> lines = agent->AwaitOut("", 2);
  ASSERT_THAT(lines, SizeIs(2)) << agent->err();
  std::sort(lines.begin(), lines.end());
  ASSERT_THAT(lines[0], StartsWith("ended "));
  ASSERT_THAT(lines[1], StartsWith("ready rank=1 "));
  ASSERT_TRUE(AwaitEnds({std::stoi(lines[0].substr(lines[0].find(' ') + 1))}));
  RecordProperty("fired", 1);
  EXPECT_FALSE(agent->Wait(Duration::zero()).has_value()) << agent->err();
  gate.Open();
  EXPECT_EQ(agent->Wait(), ProcessEnd{.code = 0}) << agent->err();
  EXPECT_THAT(agent->out(), Not(HasSubstr("round=1"))) << agent->out();
}

}  // namespace
}  // namespace ddprun
