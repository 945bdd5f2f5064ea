#include "rendezvous/client/link_watch.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

constexpr TimePoint kStart{seconds(100)};
constexpr Duration kInterval = seconds(1);

proto::CoordinatorMessage Welcome(int64_t heartbeat_ms) {
  proto::CoordinatorMessage message;
  message.mutable_welcome()->set_heartbeat_ms(heartbeat_ms);
  return message;
}
proto::CoordinatorMessage Heard() {
  proto::CoordinatorMessage message;
  message.mutable_heard();
  return message;
}

bool Beats(const LinkWatch::Action& action) {
  return std::holds_alternative<LinkWatch::SendHeartbeat>(action);
}
std::string WhyLost(const LinkWatch::Action& action) {
  const auto* give_up = std::get_if<LinkWatch::GiveUp>(&action);
  return give_up == nullptr ? "" : give_up->why;
}

// Returns the watch of a connection that was opened at kStart and sends a heartbeat every kInterval.
LinkWatch Open(Duration welcome_limit = seconds(10)) {
  LinkWatch watch;
  watch.Started(kStart, welcome_limit);
  watch.Opened(kStart, kInterval);
  return watch;
}

TEST(LinkWatchTest, TimesOutWithoutAWelcome) {
  LinkWatch watch;
  watch.Started(kStart, seconds(2));
  EXPECT_EQ(watch.NextDeadline(), kStart + seconds(2));
  EXPECT_EQ(watch.Due(kStart + milliseconds(1999)).index(), 0);
  EXPECT_EQ(WhyLost(watch.Due(kStart + seconds(2))), "it did not answer the join within 2000 ms");
}

TEST(LinkWatchTest, SendsHeartbeatsBeforeTheWelcome) {
  LinkWatch watch = Open();
  EXPECT_EQ(watch.NextDeadline(), kStart + kInterval);
  EXPECT_TRUE(Beats(watch.Due(kStart + kInterval)));
}

TEST(LinkWatchTest, TheWelcomeSetsTheInterval) {
  LinkWatch watch = Open();
  watch.Received(Welcome(500), kStart + milliseconds(100));
  EXPECT_EQ(watch.NextDeadline(), kStart + milliseconds(600));
}

TEST(LinkWatchTest, AWelcomeWithIntervalZeroStopsHeartbeats) {
  LinkWatch watch = Open();
  watch.Received(Welcome(0), kStart + milliseconds(100));
  EXPECT_EQ(watch.NextDeadline(), std::nullopt);
  EXPECT_EQ(watch.Due(kStart + seconds(60)).index(), 0);
}

TEST(LinkWatchTest, AWelcomeWithTheSameIntervalKeepsTheNextHeartbeat) {
  LinkWatch watch = Open();
  watch.Received(Welcome(ToMillis(kInterval)), kStart + milliseconds(900));
  EXPECT_EQ(watch.NextDeadline(), kStart + kInterval);
}

TEST(LinkWatchTest, AHeardAnswersTheOldestHeartbeat) {
  LinkWatch watch = Open();
  watch.HeartbeatSent(kStart + seconds(1));
  watch.HeartbeatSent(kStart + seconds(2));
  EXPECT_EQ(watch.Received(Welcome(1000), kStart + seconds(2)), std::nullopt);
  EXPECT_EQ(watch.Received(Heard(), kStart + seconds(2)), LinkWatch::Answer{kStart + seconds(1)});
  EXPECT_EQ(watch.Received(Heard(), kStart + seconds(2)), LinkWatch::Answer{kStart + seconds(2)});
  EXPECT_EQ(watch.Received(Heard(), kStart + seconds(2)), std::nullopt);
}

TEST(LinkWatchTest, TheConnectionIsLostAfterFourUnansweredHeartbeats) {
  LinkWatch watch = Open();
  watch.Received(Welcome(1000), kStart);
  TimePoint now = kStart;
  for (int i = 0; i < LinkWatch::kMaxUnanswered; ++i) {
    now += kInterval;
    ASSERT_TRUE(Beats(watch.Due(now)));
    watch.HeartbeatSent(now);
  }
  EXPECT_EQ(watch.unanswered(), LinkWatch::kMaxUnanswered);
  EXPECT_EQ(WhyLost(watch.Due(now + kInterval)), "it has not answered for 5000 ms");
}

TEST(LinkWatchTest, AnyMessageResetsTheCountOfUnansweredHeartbeats) {
  LinkWatch watch = Open();
  watch.Received(Welcome(1000), kStart);
  for (int i = 1; i <= LinkWatch::kMaxUnanswered; ++i) watch.HeartbeatSent(kStart + i * kInterval);
  proto::CoordinatorMessage message;
  message.mutable_waiting();
  watch.Received(message, kStart + seconds(4));
  EXPECT_TRUE(Beats(watch.Due(kStart + seconds(5))));
}

TEST(LinkWatchTest, AnAgentSuspendedForAnHourSendsOneHeartbeat) {
  LinkWatch watch = Open();
  watch.Received(Welcome(1000), kStart);
  const TimePoint now = kStart + std::chrono::hours(1);
  ASSERT_TRUE(Beats(watch.Due(now)));
  watch.HeartbeatSent(now);
  EXPECT_EQ(watch.NextDeadline(), now + kInterval);
}

}  // namespace
}  // namespace ddprun
