// Tests the agent with real workers and a warden. The test acts as the coordinator.
#include "launcher/agent/agent.h"

#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "boost/asio/steady_timer.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/agent/agent_fixture.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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

TEST_F(AgentTest, PassesANoticeOn) {
  Start("exit 0");
  Await(proto::AgentMessage::kJoin);
  agent_->OnNotice({SIGUSR1, seconds(50)});
  Welcome();
  const proto::Preempted preempted = Await(proto::AgentMessage::kPreempted).preempted();
  EXPECT_EQ(preempted.reason(), "received SIGUSR1");
  EXPECT_LE(preempted.left_ms(), 50000);
  EXPECT_GT(preempted.left_ms(), 0);
  Dismiss(proto::DISMISS_REASON_PREEMPTED);
  EXPECT_EQ(AwaitExit(), 75);
}

// A worker without the SDK reads the file, or gets the signal.
TEST_F(AgentTest, AWorkerThatReadsTheNoticeFileStops) {
  Start(
      "until [ -e $DDPRUN_NOTICE_FILE ]; do sleep 0.02; done; grep -q stop_at.*because $DDPRUN_NOTICE_FILE");
  RequestStop();
  EXPECT_FALSE(Await(proto::AgentMessage::kWorkersSucceeded).workers_succeeded().finished());
  Dismiss(proto::DISMISS_REASON_PREEMPTED);
  EXPECT_EQ(AwaitExit(), 75);
}

TEST_F(AgentTest, AWorkerGetsTheFirstSignalOfANotice) {
  config_.preempt_signals = {{SIGTERM, seconds(60)}, {SIGUSR1, seconds(60)}};
  Start("kill -USR1 $$; exec sleep 1000");  // SIGUSR1 is ignored
  RequestStop();
  EXPECT_FALSE(Await(proto::AgentMessage::kWorkersSucceeded).workers_succeeded().finished());
  Dismiss(proto::DISMISS_REASON_PREEMPTED);
  EXPECT_EQ(AwaitExit(), 75);
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
    peer_->handlers.on_answered(std::chrono::steady_clock::now(), std::nullopt);
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
