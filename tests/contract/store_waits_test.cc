// Tests the calls that wait in a store, and the operations that end these waits, over each protocol and
// across protocols. See "Semantics" in docs/protocol.md.
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/contract/store_contract.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class StoreWaitsTest : public StoreContractTest {};

TEST_P(StoreWaitsTest, ExistingKeysAreReturnedEvenWithAZeroTimeout) {
  ASSERT_TRUE(client_->Set("k", "v").ok());
  EXPECT_EQ(client_->Get("k", Duration::zero()).value(), "v");
  EXPECT_THAT(client_->MultiGet({"k", "k"}, Duration::zero()).value(), ElementsAre("v", "v"));
  EXPECT_TRUE(client_->Wait({"k"}, Duration::zero()).ok());
  EXPECT_TRUE(client_->Wait({}, Duration::zero()).ok());
  EXPECT_TRUE(client_->Barrier("b", 1, Duration::zero()).ok());
}

TEST_P(StoreWaitsTest, ATimedOutWaitNamesItsKeysAndIsRemoved) {
  const std::pair<absl::Status, const char*> kCases[] = {
      {client_->Wait({"a", "b"}, kShort), "timed out after 20 ms waiting for key /a or /b"},
      {client_->Get("a", kShort).status(), "waiting for key /a"},
      {client_->MultiGet({"a", "b"}, kShort).status(), "waiting for key /a or /b"},
      {client_->QueuePop("q", kShort).status(), "waiting for key /q"},
      {client_->Barrier("x", 2, kShort), "waiting for barrier /x of 2"},
  };
  for (const auto& [status, text] : kCases) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("127.0.0.1:", port())));
  }
  EXPECT_TRUE(NumWaitingBecomes(0));
  ASSERT_TRUE(client_->Set("a", "1").ok());
  EXPECT_EQ(client_->Get("a", kLong).value(), "1");  // The client is still usable.
}

TEST_P(StoreWaitsTest, ErrorsNameOnlyTheFirstOfManyKeys) {
  std::vector<std::string> keys;
  for (int i = 0; i < 100; ++i) keys.push_back(absl::StrCat("key", i));
  const absl::Status late = client_->Wait(keys, kShort);
  EXPECT_THAT(std::string(late.message()), HasSubstr("/key0 or /key1"));
  EXPECT_THAT(std::string(late.message()), HasSubstr("or 92 others"));
}

TEST_P(StoreWaitsTest, AWaitEndsWhenAllOfItsKeysAreSet) {
  auto waited = RunAsync([client = Connect()] { return client->Wait({"a", "b", "a"}, kLong); });
  ASSERT_TRUE(NumWaitingBecomes(1));
  ASSERT_TRUE(client_->Set("a", "").ok());
  ASSERT_TRUE(client_->Set("other", "").ok());
  ASSERT_EQ(client_->NumKeys().value(), 2);  // The server has executed both requests.
  EXPECT_EQ(NumWaiting(), 1);
  ASSERT_TRUE(client_->Set("b", "").ok());
  EXPECT_TRUE(waited.get().ok());
}

TEST_P(StoreWaitsTest, AKeyThatWasSetAndDeletedSatisfiesAWait) {
  auto waited = RunAsync([client = Connect()] { return client->Wait({"a", "b"}, kLong); });
  ASSERT_TRUE(NumWaitingBecomes(1));
  ASSERT_TRUE(client_->Set("a", "").ok());
  ASSERT_TRUE(client_->DeleteKey("a").value());
  ASSERT_TRUE(client_->Set("b", "").ok());
  EXPECT_TRUE(waited.get().ok());
}

TEST_P(StoreWaitsTest, ACompareSetThatStoresNothingWakesNoWaiter) {
  auto got = RunAsync([client = Connect()] { return client->Get("k", kLong); });
  ASSERT_TRUE(NumWaitingBecomes(1));
  ASSERT_EQ(client_->CompareSet("k", "other", "v").value(), "other");
  EXPECT_EQ(NumWaiting(), 1);
  ASSERT_EQ(client_->CompareSet("k", "", "v").value(), "v");
  EXPECT_EQ(got.get().value(), "v");
}

TEST_P(StoreWaitsTest, ABarrierOpensForAllWhenTheLastArrives) {
  std::vector<std::future<absl::Status>> others;
  for (int i = 0; i < 3; ++i) {
    others.push_back(RunAsync([client = Connect()] { return client->Barrier("b", 4, kLong); }));
    ASSERT_TRUE(NumWaitingBecomes(i + 1));
  }
  EXPECT_EQ(client_->Get("b", kLong).value(), "3");  // The count is an ordinary key.
  EXPECT_TRUE(client_->Barrier("b", 4, kLong).ok());
  for (auto& other : others) EXPECT_TRUE(other.get().ok());
  EXPECT_TRUE(client_->Barrier("b", 4, kLong).ok());  // The barrier stays open.
  EXPECT_EQ(client_->Get("b", kLong).value(), "5");
}

TEST_P(StoreWaitsTest, AClientThatTimesOutAtABarrierStaysCounted) {
  EXPECT_EQ(client_->Barrier("b", 2, kShort).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(client_->Barrier("b", 2, kLong).ok());
}

DDPRUN_FOR_EACH_PROTOCOL(StoreWaitsTest);

// Operations over each protocol wake waiters on the same protocol and on the other protocol.
class StoreWakesTest : public StorePortTest,
                       public testing::WithParamInterface<std::tuple<Protocol, Protocol>> {
 protected:
  std::unique_ptr<StoreClient> ConnectWaiter() { return Connect(std::get<0>(GetParam())); }

  std::unique_ptr<StoreClient> waker_ = Connect(std::get<1>(GetParam()));
};

TEST_P(StoreWakesTest, EveryOperationThatCreatesAKeyEndsAWaitForIt) {
  using Make = absl::Status (*)(StoreClient&, const std::string&);
  const Make kMakers[] = {
      [](StoreClient& c, const std::string& key) { return c.Set(key, "1"); },
      [](StoreClient& c, const std::string& key) {
        return c.MultiSet({{"other", ""}, {key, "1"}});
      },
      [](StoreClient& c, const std::string& key) { return c.Append(key, "1"); },
      [](StoreClient& c, const std::string& key) { return c.Add(key, 1).status(); },
      [](StoreClient& c, const std::string& key) { return c.CompareSet(key, "", "1").status(); },
      [](StoreClient& c, const std::string& key) { return c.Barrier(key, 1, kLong); },
  };
  int n = 0;
  for (const Make make : kMakers) {
    const std::string key = absl::StrCat("k", n++);
    SCOPED_TRACE(key);
    auto got = RunAsync([client = ConnectWaiter(), key] { return client->Get(key, kLong); });
    ASSERT_TRUE(NumWaitingBecomes(1));
    ASSERT_TRUE(make(*waker_, key).ok());
    const absl::StatusOr<std::string> value = got.get();
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(*value, "1");
  }
}

TEST_P(StoreWakesTest, AllWaitersAreWoken) {
  std::vector<std::future<absl::StatusOr<std::vector<std::string>>>> waiters;
  for (int i = 0; i < 20; ++i) {
    waiters.push_back(RunAsync([client = ConnectWaiter()] { return client->MultiGet({"a", "b"}, kLong); }));
  }
  ASSERT_TRUE(NumWaitingBecomes(20));
  ASSERT_TRUE(waker_->MultiSet({{"a", "1"}, {"b", "2"}}).ok());
  for (auto& waiter : waiters) EXPECT_THAT(waiter.get().value(), ElementsAre("1", "2"));
}

TEST_P(StoreWakesTest, APushWakesTheOldestWaiter) {
  std::vector<std::future<absl::StatusOr<std::string>>> waiters;
  for (int i = 0; i < 3; ++i) {
    waiters.push_back(RunAsync([client = ConnectWaiter()] { return client->QueuePop("q", kLong); }));
    ASSERT_TRUE(NumWaitingBecomes(i + 1));
  }
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(waker_->QueuePush("q", absl::StrCat("item ", i)).ok());
    EXPECT_EQ(waiters[i].get().value(), absl::StrCat("item ", i));
    EXPECT_EQ(NumWaiting(), 2 - i);
  }
}

TEST_P(StoreWakesTest, ABarrierCountsClientsOfBothProtocols) {
  auto waited = RunAsync([client = ConnectWaiter()] { return client->Barrier("b", 2, kLong); });
  ASSERT_TRUE(NumWaitingBecomes(1));
  EXPECT_TRUE(waker_->Barrier("b", 2, kLong).ok());
  EXPECT_TRUE(waited.get().ok());
}

INSTANTIATE_TEST_SUITE_P(Protocols, StoreWakesTest,
                         testing::Combine(testing::Values(Protocol::kC10d, Protocol::kGrpc),
                                          testing::Values(Protocol::kC10d, Protocol::kGrpc)),
                         [](const testing::TestParamInfo<std::tuple<Protocol, Protocol>>& info) {
                           return ProtocolName(std::get<0>(info.param)) + "WokenBy" +
                                  ProtocolName(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace ddprun
