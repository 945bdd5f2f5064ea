// A fixture for tests of the agent with real workers and a warden. The test acts as the coordinator.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "boost/asio/post.hpp"
#include "gtest/gtest.h"
#include "launcher/agent/agent.h"

namespace ddprun {

// The coordinator's end of a link: messages from the agent, and the agent's handlers.
struct FakePeer {
  CoordinatorLink::Handlers handlers = {};
  std::deque<proto::AgentMessage> sent = {};
  bool closed = false;
};

class FakeLink : public CoordinatorLink {
 public:
  FakeLink(boost::asio::io_context& io, std::shared_ptr<FakePeer> peer) : io_(io), peer_(std::move(peer)) {}
  void Start(Handlers handlers) override {
    peer_->handlers = std::move(handlers);
    boost::asio::post(io_, [peer = peer_] { peer->handlers.on_open(); });
  }
  void Send(const proto::AgentMessage& message) override { peer_->sent.push_back(message); }
  void Close() override { peer_->closed = true; }

 private:
  boost::asio::io_context& io_;
  const std::shared_ptr<FakePeer> peer_;
};

class NoStores : public RoundStores {
 public:
  absl::StatusOr<int> Offer() override { return 1; }
  void Withdraw() override {}
};

// Records each call as a short text.
class FakeObserver : public AgentObserver {
 public:
  void OnWaiting(TimePoint) override { Add("waiting"); }
  void OnRound(const Assignment& a, TimePoint) override { Add(absl::StrCat("round ", a.round.value())); }
  void OnWorkerStarted(LocalRank rank, pid_t pid, TimePoint) override {
    EXPECT_GT(pid, 0);
    Add(absl::StrCat("started ", rank.value()));
  }
  void OnWorkerKept(LocalRank rank, pid_t pid, TimePoint) override {
    EXPECT_GT(pid, 0);
    Add(absl::StrCat("kept ", rank.value()));
  }
  void OnFailure(TimePoint) override { Add("failure"); }
  void OnStopping(TimePoint) override { Add("stopping"); }
  void OnWorkersGone(const std::vector<std::string>&, TimePoint) override { Add("gone"); }
  void OnWatchdog(const WatchdogNote& note, TimePoint) override {
    Add(absl::StrCat(note.what, note.pid == 0 ? "" : absl::StrCat(": ", note.scope)));
  }
  void OnState(AgentMachine::State state, Round, int alive, TimePoint) override {
    if (state == AgentMachine::State::kRunning) most_alive = std::max(most_alive, alive);
  }
  void OnHostName(const std::string& name) override { host_names.push_back(name); }
  void OnEnd(const AgentEnd& end, TimePoint) override {
    Add("end");
    ends.push_back(end);
  }
  void Add(std::string word) { words.push_back(std::move(word)); }

  std::vector<std::string> words;
  std::vector<std::string> host_names;
  std::vector<AgentEnd> ends;
  int most_alive = 0;
};

class AgentTest : public ::testing::Test {
 protected:
  // Starts an agent whose worker runs `script` in a shell.
  void Start(const std::string& script) { StartProgram({"/bin/sh", "-c", script}, 1); }
  void StartProgram(std::vector<std::string> argv, int num_workers) {
    config_.num_local_workers = num_workers;
    config_.run_id = "j";
    if (config_.log_dir.empty()) config_.log_dir = "/dev/null";
    config_.shutdown_timeout = seconds(60);
    config_.exit_codes = ExitCodes::kScheduler;
    config_.program = {.argv = std::move(argv), .name = "script"};
    WardenHandle warden = StartWarden();  // before this process has a second thread
    log_directory_.emplace(io_, &config_, &log_);
    agent_.emplace(io_,
                   Agent::Parts{.config = &config_,
                                .log = &log_,
                                .log_directory = &*log_directory_,
                                .stores = &stores_,
                                .warden = std::move(warden),
                                .host = "node1",
                                .address = "127.0.0.1",
                                .relink =
                                    [this](Duration, auto done) {
                                      ++relinks_;
                                      boost::asio::post(io_, [this, done = std::move(done)] {
                                        if (gone_) return done(absl::UnavailableError("connection refused"));
                                        done(NewLink());
                                      });
                                    },
                                .observers = {&observer_},
                                .counts_down = true},
                   [this](int code) { exit_code_ = code; });
    agent_->Start(NewLink());
  }
  std::unique_ptr<CoordinatorLink> NewLink() {
    peer_ = std::make_shared<FakePeer>();
    return std::make_unique<FakeLink>(io_, peer_);
  }

  // Runs the loop until `done` returns true; fails the test after 60 s.
  void RunUntil(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + seconds(60);
    while (!done() && std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_one_for(seconds(1));
    }
    ASSERT_TRUE(done());
  }
  // Waits for the next message from the agent, and checks that the message is of this kind. Skips standstills.
  proto::AgentMessage Await(proto::AgentMessage::KindCase kind) {
    RunUntil([this] {
      while (!peer_->sent.empty() && peer_->sent.front().has_standstill()) peer_->sent.pop_front();
      return !peer_->sent.empty();
    });
    if (peer_->sent.empty()) return {};
    proto::AgentMessage message = peer_->sent.front();
    peer_->sent.pop_front();
    EXPECT_EQ(message.kind_case(), kind) << message.ShortDebugString();
    return message;
  }
  int AwaitExit() {
    RunUntil([this] { return exit_code_.has_value(); });
    return exit_code_.value_or(-1);
  }

  void Tell(const proto::CoordinatorMessage& message) {
    boost::asio::post(io_, [peer = peer_, message] { peer->handlers.on_message(message); });
  }
  void Welcome() {
    proto::CoordinatorMessage message;
    message.mutable_welcome()->set_heartbeat_ms(0);
    Tell(message);
  }
  // Starts round 0, and asks its workers to stop.
  void RequestStop() {
    Await(proto::AgentMessage::kJoin);
    Welcome();
    StartRound(0);
    RunUntil([this] { return observer_.most_alive > 0; });
    proto::CoordinatorMessage message;
    message.mutable_take_snapshot()->set_round(0);
    message.mutable_take_snapshot()->set_reason("because");
    message.mutable_take_snapshot()->set_stop_within_ms(50000);
    Tell(message);
  }
  void StartRound(int round) {
    proto::CoordinatorMessage message;
    message.mutable_start()->set_round(round);
    message.mutable_start()->set_group_world_size(1);
    message.mutable_start()->set_world_size(config_.num_local_workers);
    message.mutable_start()->set_role_world_size(config_.num_local_workers);
    message.mutable_start()->set_master_addr("127.0.0.1");
    message.mutable_start()->set_master_port(1);
    Tell(message);
  }
  // Acts as the coordinator of a job with a failed and a successful round, from join to exit.
  void RunAFailedAndASuccessfulRound() {
    Await(proto::AgentMessage::kJoin);
    Welcome();
    StartRound(0);
    Await(proto::AgentMessage::kWorkersFailed);
    Await(proto::AgentMessage::kReady);
    StartRound(1);
    Await(proto::AgentMessage::kWorkersSucceeded);
    Dismiss(proto::DISMISS_REASON_SUCCEEDED);
    EXPECT_EQ(AwaitExit(), 0);
  }
  void Dismiss(proto::DismissReason reason) {
    proto::CoordinatorMessage message;
    message.mutable_dismiss()->set_reason(reason);
    message.mutable_dismiss()->set_message("because");
    Tell(message);
  }

  boost::asio::io_context io_;
  LaunchConfig config_;
  AgentLog log_{"node1", ""};
  NoStores stores_;
  std::shared_ptr<FakePeer> peer_;  // of the latest link
  bool gone_ = false;               // true: the coordinator cannot be found again
  int relinks_ = 0;
  FakeObserver observer_;
  std::optional<int> exit_code_;
  std::optional<LogDirectory> log_directory_;
  std::optional<Agent> agent_;
};

}  // namespace ddprun
