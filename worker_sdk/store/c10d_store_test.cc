#include "worker_sdk/store/c10d_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "base/event.h"
#include "worker_sdk/store/testing/fake_c10d_server.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

TEST(C10dStoreTest, SetsAndGetsUnderThePrefix) {
  FakeC10dServer server;
  C10dStore store("127.0.0.1", server.port(), "ddprun/7/", seconds(30));
  ASSERT_EQ(store.Set("rank/0", "here"), OkStatus());
  EXPECT_EQ(store.Get("rank/0", seconds(30)).value_or("none"), "here");
  EXPECT_EQ(server.ValueOf("/ddprun/7/rank/0"), "here");
  EXPECT_EQ(server.connections(), 1);
}

TEST(C10dStoreTest, ATimedOutGetNamesTheKeyAndTheStoreStaysUsable) {
  FakeC10dServer server;
  C10dStore store("127.0.0.1", server.port(), "p/", seconds(30));
  const Status status = store.Get("missing", milliseconds(20)).status();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("timed out waiting for key /p/missing"));
  ASSERT_EQ(store.Set("k", "v"), OkStatus());
  EXPECT_EQ(store.Get("k", seconds(30)).value_or("none"), "v");
  EXPECT_EQ(server.connections(), 1);
}

TEST(C10dStoreTest, ReconnectsAfterALostConnection) {
  FakeC10dServer server;
  C10dStore store("127.0.0.1", server.port(), "", seconds(30));
  ASSERT_EQ(store.Set("k", "v"), OkStatus());
  ASSERT_EQ(store.Get("k", seconds(30)).value_or("none"), "v");  // the server has handled SET
  server.Hangup();
  const Status lost = store.Get("k", seconds(30)).status();
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable);
  EXPECT_THAT(lost.message(), HasSubstr("worker store 127.0.0.1:"));
  EXPECT_EQ(store.Get("k", seconds(30)).value_or("none"), "v");
  EXPECT_EQ(server.connections(), 2);
}

TEST(C10dStoreTest, RejectsAnotherServer) {
  FakeC10dServer server;
  server.echo = "HTTP";
  C10dStore store("127.0.0.1", server.port(), "", seconds(30));
  const Status status = store.Set("k", "v");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("is not a c10d store"));
}

// kInternal would make this worker the first cause of the failure.
TEST(C10dStoreTest, AnUnexpectedReplyIsAnErrorOfTheStore) {
  FakeC10dServer server;
  server.wait_reply = "x";
  C10dStore store("127.0.0.1", server.port(), "", seconds(30));
  const Status status = store.Get("k", seconds(30)).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("unexpected reply to WAIT"));
}

TEST(C10dStoreTest, GivesUpConnectingAtItsTimeout) {
  int port = 0;
  {
    const FakeC10dServer server;
    port = server.port();
  }
  C10dStore store("127.0.0.1", port, "", milliseconds(50));
  const Status status = store.Set("k", "v");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("refused"));
}

TEST(C10dStoreTest, CancelEndsAGetAndAllLaterCalls) {
  FakeC10dServer server;
  Event waits;
  server.waits = &waits;
  C10dStore store("127.0.0.1", server.port(), "", seconds(30));
  std::thread other([&] {
    EXPECT_TRUE(waits.WaitUntil(std::chrono::steady_clock::now() + seconds(30)));
    store.Cancel();
  });
  EXPECT_EQ(store.Get("missing", seconds(300)).status().code(), StatusCode::kCancelled);
  other.join();
  EXPECT_EQ(store.Get("k", seconds(30)).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(store.Set("k", "v").code(), StatusCode::kCancelled);
  EXPECT_EQ(server.connections(), 1);
}

TEST(C10dStoreTest, CancelEndsAttemptsToConnect) {
  int port = 0;
  {
    const FakeC10dServer server;
    port = server.port();
  }
  C10dStore store("127.0.0.1", port, "", seconds(300));
  std::thread other([&] { store.Cancel(); });
  EXPECT_EQ(store.Set("k", "v").code(), StatusCode::kCancelled);
  other.join();
}

TEST(C10dStoreTest, WithoutAStoreItNamesTheRemedy) {
  C10dStore store("", 0, "", seconds(1));
  EXPECT_EQ(store.Set("k", "v").code(), StatusCode::kFailedPrecondition);
}

TEST(C10dStoreTest, RejectsKeysAndValuesThatAreTooLong) {
  C10dStore store("127.0.0.1", 1, "", seconds(1));
  EXPECT_EQ(store.Set(std::string(9000, 'k'), "").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(store.Set("k", std::string((8 << 20) + 1, 'v')).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ddprun
