// Tests which errors clients get, over both protocols, when a store ends or when the store of the next round
// replaces the current store. See "The end of a store" in docs/protocol.md.

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "rendezvous/client/coordinator_link.h"
#include "rendezvous/testing/join.h"
#include "tests/contract/store_contract.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

class StoreEndsTest : public StoreContractTest {
 protected:
  ~StoreEndsTest() override {
    thread_.Run([this] { link_.reset(); });
  }
  // Lets an agent join. The agent stays connected until link_ is destroyed.
  void JoinHere() {
    thread_.Run([this] {
      link_ = host_->Link("127.0.0.1");
      link_->Start({.on_message = [](const proto::CoordinatorMessage&) {},
                    .on_lost = {},
                    .heartbeat = [](proto::Heartbeat&) {}});
      link_->Send(JoinOf("here", 2));
    });
  }
  static void ExpectUnusable(StoreClient& client) {
    const absl::Status gone = client.NumKeys().status();
    EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable) << gone;
    EXPECT_THAT(std::string(gone.message()), HasSubstr("make a new client"));
  }

  std::unique_ptr<CoordinatorLink> link_;
};

TEST_P(StoreEndsTest, WaitsFailAndNameTheirKeysWhenTheStoreEnds) {
  auto waited = RunAsync([client = std::move(client_)] {
    const absl::Status first = client->Wait({"never", "ever"}, kLong);
    ExpectUnusable(*client);
    return first;
  });
  auto barrier = RunAsync([client = Connect()] { return client->Barrier("b", 2, kLong); });
  ASSERT_TRUE(NumWaitingBecomes(2));
  std::future<void> closed = Close("maintenance");
  const absl::Status ended = waited.get();
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("waiting for key /never or /ever: "));
  EXPECT_THAT(std::string(ended.message()),
              HasSubstr(GetParam() == Protocol::kC10d ? "the store closed the connection"
                                                      : "the store is shutting down: maintenance"));
  EXPECT_THAT(std::string(barrier.get().message()), HasSubstr("waiting for barrier /b of 2: "));
  EXPECT_EQ(closed.wait_for(kLong), std::future_status::ready);
}

TEST_P(StoreEndsTest, TheStoreServesWorkersUntilAllAgentsHaveLeft) {
  JoinHere();
  auto waited = RunAsync([client = Connect()] { return client->Get("k", kLong); });
  ASSERT_TRUE(NumWaitingBecomes(1));
  std::future<void> closed = Close("maintenance");
  // The connected agent may have workers, so the store still serves clients.
  EXPECT_EQ(client_->Add("n", 1).value(), 1);
  ASSERT_TRUE(Connect()->Set("k", "v").ok());
  EXPECT_EQ(waited.get().value(), "v");
  EXPECT_EQ(closed.wait_for(Duration::zero()), std::future_status::timeout);
  thread_.Run([this] { link_.reset(); });
  EXPECT_EQ(closed.wait_for(kLong), std::future_status::ready);
  ExpectUnusable(*client_);
}

TEST_P(StoreEndsTest, DestroyingTheHostEndsWaits) {
  auto waited = RunAsync([client = std::move(client_)] { return client->Get("never", kLong).status(); });
  ASSERT_TRUE(NumWaitingBecomes(1));
  thread_.Run([this] { host_.reset(); });
  EXPECT_EQ(waited.get().code(), absl::StatusCode::kUnavailable);
}

TEST_P(StoreEndsTest, TheStoreOfTheNextRoundIsEmpty) {
  ASSERT_TRUE(client_->Set("k", "v").ok());
  ASSERT_EQ(client_->NumKeys().value(), 1);
  thread_.Run([this] { host_->RenewStore(); });
  EXPECT_EQ(Connect()->NumKeys().value(), 0);
  // Clients of the earlier round cannot change the new store.
  const absl::StatusOr<int64_t> late = client_->Add("k2", 1);
  if (GetParam() == Protocol::kGrpc) {
    EXPECT_EQ(late.status().code(), absl::StatusCode::kAborted) << late.status();
    EXPECT_THAT(std::string(late.status().message()), HasSubstr("earlier round"));
    EXPECT_EQ(client_->Set("k", ""), late.status());  // The client is unusable and repeats its error.
  } else {
    EXPECT_TRUE(late.ok()) << late.status();  // the call changes the earlier round's store
  }
  EXPECT_EQ(Connect()->NumKeys().value(), 0);
}

TEST_P(StoreEndsTest, WaitsInAnEarlierRoundEndWithItsStore) {
  auto waited = RunAsync([client = std::move(client_)] { return client->Get("k", kLong).status(); });
  ASSERT_TRUE(NumWaitingBecomes(1));
  thread_.Run([this] { host_->RenewStore(); });
  ASSERT_TRUE(Connect()->Set("k", "of another round").ok());
  thread_.Run([this] { host_->RenewStore(); });
  const absl::Status ended = waited.get();
  EXPECT_EQ(ended.code(),
            GetParam() == Protocol::kGrpc ? absl::StatusCode::kAborted : absl::StatusCode::kUnavailable)
      << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("waiting for key /k: "));
}

DDPRUN_FOR_EACH_PROTOCOL(StoreEndsTest);

}  // namespace
}  // namespace ddprun
