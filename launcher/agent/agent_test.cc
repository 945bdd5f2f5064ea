// Tests the agent with real workers and a warden. The test acts as the coordinator.
#include "launcher/agent/agent.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Duration kDeadline = seconds(60);

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
  // Starts an agent whose workers run `script` in a shell.
  void Start(const std::string& script) {
    config_.num_local_workers = 1;
    config_.run_id = "j";
    if (config_.log_dir.empty()) config_.log_dir = "/dev/null";
    config_.shutdown_timeout = seconds(60);
    config_.exit_codes = ExitCodes::kScheduler;
    config_.program = {.argv = {"/bin/sh", "-c", script}, .name = "script"};
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

  // Runs the loop until `done` returns true; fails the test after kDeadline.
  void RunUntil(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!done() && std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_one_for(seconds(1));
    }
    ASSERT_TRUE(done());
  }
  // Waits for the next message from the agent, and checks that the message is of this kind.
  proto::AgentMessage Await(proto::AgentMessage::KindCase kind) {
    RunUntil([this] { return !peer_->sent.empty(); });
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
  void StartRound(int round) {
    proto::CoordinatorMessage message;
    message.mutable_start()->set_round(round);
    message.mutable_start()->set_group_world_size(1);
    message.mutable_start()->set_world_size(1);
    message.mutable_start()->set_role_world_size(1);
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

TEST_F(AgentTest, CountsDownToTheEndOfTheLastCall) {
  std::vector<std::string> said;
  log_.SendTo([&said](absl::string_view line) { said.emplace_back(line); });
  Start("exit 0");
  Await(proto::AgentMessage::kJoin);
  Welcome();
  // Redirect the log again, because the constructor of Agent has redirected it to stderr.
  log_.SendTo([&said](absl::string_view line) { said.emplace_back(line); });
  proto::CoordinatorMessage message;
  message.mutable_waiting()->set_text("1 node waits");
  message.mutable_waiting()->set_start_in_ms(1100);
  Tell(message);
  RunUntil([&] { return said.size() >= 2; });
  EXPECT_THAT(said,
              ElementsAre(HasSubstr("1 node waits"), HasSubstr("the workers start in 1 s at the latest")));
  Dismiss(proto::DISMISS_REASON_SUCCEEDED);
  AwaitExit();
  log_.SendTo({});
}

TEST_F(AgentTest, AFailureIsSentImmediatelyAndInFullWithReady) {
  Start("echo no cheese >&2; exit 3");
  EXPECT_EQ(Await(proto::AgentMessage::kJoin).join().host(), "node1");
  Welcome();
  StartRound(0);
  const proto::WorkersFailed failed = Await(proto::AgentMessage::kWorkersFailed).workers_failed();
  EXPECT_EQ(failed.failure().exit_code(), 3);
  EXPECT_THAT(failed.failure().cause(), HasSubstr("rank 0 (local_rank 0) on node1 failed: exit code 3"));
  const proto::Ready ready = Await(proto::AgentMessage::kReady).ready();
  ASSERT_THAT(ready.failures(), SizeIs(1));
  EXPECT_EQ(ready.failures(0).stderr_tail(), "no cheese");
  EXPECT_GE(ready.failures(0).age_us(), failed.failure().age_us());
  Dismiss(proto::DISMISS_REASON_FAILED);
  EXPECT_EQ(AwaitExit(), 1);
}

TEST_F(AgentTest, CallsObservers) {
  config_.event_handler = EventHandler::kConsole;  // makes the agent look up its host name
  Start("exit $((3 - 3 * DDPRUN_ROUND))");
  RunAFailedAndASuccessfulRound();
  EXPECT_THAT(observer_.words, ElementsAre("waiting", "round 0", "started 0", "failure", "gone", "waiting",
                                           "round 1", "started 0", "gone", "end"));
  EXPECT_THAT(observer_.host_names, SizeIs(1));
  EXPECT_EQ(observer_.most_alive, 1);
  ASSERT_THAT(observer_.ends, SizeIs(1));
  EXPECT_EQ(observer_.ends[0].reason, EndReason::kSucceeded);
  EXPECT_THAT(observer_.ends[0].failures, IsEmpty()) << "failures of an earlier round must not be listed";
}

TEST_F(AgentTest, AnExpiredTimerIsReportedAsTheCause) {
  config_.watchdog_fifo = absl::StrCat(testing::TempDir(), "/agent_timers", getpid());
  Start(
      "echo '{\"version\": 1, \"pid\": '$$$$', \"scope_id\": \"a step\", \"expiration_time\": 5, "
      "\"signal\": 9}' > $TORCHELASTIC_TIMER_FILE; exec sleep 1000");
  Await(proto::AgentMessage::kJoin);
  Welcome();
  StartRound(0);
  const proto::Failure failure = Await(proto::AgentMessage::kWorkersFailed).workers_failed().failure();
  EXPECT_EQ(failure.signaled().signo(), SIGKILL);
  EXPECT_THAT(failure.cause(), HasSubstr("failed: SIGKILL, its watchdog timer \"a step\" expired"));
  Await(proto::AgentMessage::kReady);
  Dismiss(proto::DISMISS_REASON_FAILED);
  AwaitExit();
  // OnWorkerStarted may be called at any time before the worker exits.
  EXPECT_EQ(std::erase(observer_.words, "started 0"), 1);
  EXPECT_THAT(observer_.words, ElementsAre("waiting", "round 0", "watchdog started", "timer expired: a step",
                                           "kill worker process: a step", "failure", "watchdog stopped",
                                           "gone", "waiting", "end"));
  ASSERT_THAT(observer_.ends, SizeIs(1));
  EXPECT_EQ(observer_.ends[0].why, "because");
  EXPECT_THAT(observer_.ends[0].failures, SizeIs(1));
  agent_.reset();
  EXPECT_NE(access(config_.watchdog_fifo->c_str(), F_OK), 0);
}

// The launcher's own error file, TORCHELASTIC_ERROR_FILE.
class OwnErrorFileTest : public AgentTest {
 protected:
  OwnErrorFileTest() {
    config_.own_error_file = absl::StrCat(testing::TempDir(), "/own_error_file", getpid());
    config_.log_dir = testing::TempDir();
    unlink(config_.own_error_file.c_str());
  }
  std::string Contents() const {
    std::ifstream file(config_.own_error_file);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

constexpr char kFailsInRoundZero[] =
    "test $DDPRUN_ROUND = 0 || exit 0; "
    "echo '{\"message\": {\"message\": \"m\", \"extraInfo\": {\"timestamp\": 5}}}' > "
    "$TORCHELASTIC_ERROR_FILE; "
    "exit 3";

TEST_F(OwnErrorFileTest, HasTheRootCauseAfterAFailedJob) {
  Start(kFailsInRoundZero);
  Await(proto::AgentMessage::kJoin);
  Welcome();
  StartRound(0);
  Await(proto::AgentMessage::kWorkersFailed);
  Await(proto::AgentMessage::kReady);
  EXPECT_EQ(Contents(), "") << "the file must stay empty while the job may still be restarted";
  Dismiss(proto::DISMISS_REASON_FAILED);
  AwaitExit();
  EXPECT_EQ(Contents(), R"({"message": {"message": "m", "extraInfo": {"timestamp": 5}, "errorCode": 3}})");
}

TEST_F(OwnErrorFileTest, IsAbsentIfTheJobSucceeds) {
  Start(kFailsInRoundZero);
  RunAFailedAndASuccessfulRound();
  EXPECT_NE(access(config_.own_error_file.c_str(), F_OK), 0);
}

TEST_F(OwnErrorFileTest, HasTheReasonForWhichTheLauncherEnds) {
  Start("exec sleep 1000");
  Await(proto::AgentMessage::kJoin);
  Welcome();
  Dismiss(proto::DISMISS_REASON_JOIN_TIMEOUT);
  AwaitExit();
  EXPECT_THAT(Contents(), HasSubstr(R"({"message": {"message": "RendezvousTimeoutError: because", )"));
}

TEST_F(OwnErrorFileTest, HasTheSignal) {
  Start("exec sleep 1000");
  Await(proto::AgentMessage::kJoin);
  boost::asio::post(io_, [this] { agent_->OnSignal(SIGTERM); });
  AwaitExit();
  EXPECT_THAT(Contents(), HasSubstr(absl::StrCat("SignalException: Process ", getpid(), " got signal: 15")));
}

TEST_F(AgentTest, ANodeThatLosesItsConnectionRejoinsAsANewNode) {
  Start("test $DDPRUN_ROUND -gt 0 || exec sleep 1000");
  const proto::Join first = Await(proto::AgentMessage::kJoin).join();
  Welcome();
  StartRound(0);
  boost::asio::post(io_, [peer = peer_] { peer->handlers.on_lost(absl::UnavailableError("reset")); });
  const std::shared_ptr<FakePeer> old = peer_;
  RunUntil([&] { return peer_ != old; });
  EXPECT_TRUE(old->closed);
  EXPECT_THAT(old->sent, testing::IsEmpty()) << "exits after the lost connection must not be reported";
  const proto::Join second = Await(proto::AgentMessage::kJoin).join();
  EXPECT_NE(second.node_id(), first.node_id());
  Welcome();
  StartRound(1);
  EXPECT_EQ(Await(proto::AgentMessage::kWorkersSucceeded).workers_succeeded().round(), 1);
  Dismiss(proto::DISMISS_REASON_SUCCEEDED);
  EXPECT_EQ(AwaitExit(), 0);
}

// The connection stays open and the link reports no error, but the coordinator does not answer.
TEST_F(AgentTest, WithoutAnswersTheFenceKillsWorkersAndTheNodeSeeksItsCoordinator) {
  config_.rdzv.lease = milliseconds(500);
  gone_ = true;
  Start("trap '' TERM; sleep 1000 & wait");
  Await(proto::AgentMessage::kJoin);
  Welcome();
  StartRound(0);
  const std::shared_ptr<FakePeer> old = peer_;
  EXPECT_EQ(AwaitExit(), 75);
  EXPECT_EQ(relinks_, 1);
  EXPECT_THAT(old->sent, testing::IsEmpty()) << "killed workers must not be reported as failures";
}

TEST_F(AgentTest, AnsweredHeartbeatsRenewTheFence) {
  config_.rdzv.lease = seconds(3);
  Start("sleep 4");  // longer than a lease
  Await(proto::AgentMessage::kJoin);
  Welcome();
  StartRound(7);
  std::set<int64_t> rounds;
  boost::asio::steady_timer timer(io_);
  std::function<void()> beat = [&] {
    proto::Heartbeat heartbeat;
    peer_->handlers.heartbeat(heartbeat);
    rounds.insert(heartbeat.round());
    peer_->handlers.on_answered(std::chrono::steady_clock::now());
    timer.expires_after(milliseconds(50));
    timer.async_wait([&](const boost::system::error_code& error) {
      if (!error) beat();
    });
  };
  beat();
  EXPECT_EQ(Await(proto::AgentMessage::kWorkersSucceeded).workers_succeeded().round(), 7);
  EXPECT_EQ(relinks_, 0);
  EXPECT_TRUE(rounds.contains(7));
  timer.cancel();
  Dismiss(proto::DISMISS_REASON_SUCCEEDED);
  EXPECT_EQ(AwaitExit(), 0);
}

TEST_F(AgentTest, ASignalWhileSeekingEndsTheAgent) {
  Start("exec sleep 1000");
  Await(proto::AgentMessage::kJoin);
  boost::asio::post(io_, [this] {
    peer_->handlers.on_lost(absl::UnavailableError("reset"));
    agent_->OnSignal(SIGTERM);
  });
  EXPECT_EQ(AwaitExit(), 75);
  EXPECT_EQ(relinks_, 1);
}

}  // namespace
}  // namespace ddprun
