// Tests the operations of a store over both protocols. See "Semantics" in docs/protocol.md.

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "net/testing/raw_peer.h"
#include "tests/contract/store_contract.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class StoreOperationsTest : public StoreContractTest {};

TEST_P(StoreOperationsTest, GetReturnsTheValueOfTheLatestSet) {
  ASSERT_TRUE(client_->Set("k", "v1").ok());
  EXPECT_EQ(client_->Get("k", kLong).value(), "v1");
  ASSERT_TRUE(client_->Set("k", "").ok());
  EXPECT_EQ(client_->Get("k", kLong).value(), "");
}

TEST_P(StoreOperationsTest, KeysAndValuesMayContainAnyBytes) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  ASSERT_TRUE(client_->Set(bytes, bytes).ok());
  EXPECT_EQ(client_->Get(bytes, kLong).value(), bytes);
  EXPECT_THAT(client_->ListKeys().value(), ElementsAre(bytes));
  ASSERT_TRUE(client_->Set("", "empty key").ok());
  EXPECT_EQ(client_->Get("", kLong).value(), "empty key");
}

TEST_P(StoreOperationsTest, UsesTheSameKeysAsPyTorch) {
  ASSERT_TRUE(client_->Set("k", "v").ok());
  ASSERT_TRUE(client_->Check({"k"}).value());
  EXPECT_TRUE(thread_.Run([this] { return host_->StoreForTest().Contains("/k"); }));
}

TEST_P(StoreOperationsTest, MultiSetAndMultiGetKeepTheirOrder) {
  const StoreClient::Pair pairs[] = {{"a", "1"}, {"b", "22"}, {"a", "3"}, {"c", ""}};
  ASSERT_TRUE(client_->MultiSet(pairs).ok());
  EXPECT_THAT(client_->MultiGet({"c", "a", "b", "a"}, kLong).value(), ElementsAre("", "3", "22", "3"));
  ASSERT_TRUE(client_->MultiSet({}).ok());
  EXPECT_THAT(client_->MultiGet({}, kLong).value(), IsEmpty());
  EXPECT_EQ(client_->NumKeys().value(), 3);
}

TEST_P(StoreOperationsTest, AppendCreatesAKeyOrExtendsItsValue) {
  ASSERT_TRUE(client_->Append("k", "xy").ok());
  ASSERT_TRUE(client_->Append("k", std::string("\0z", 2)).ok());
  EXPECT_EQ(client_->Get("k", kLong).value(), std::string("xy\0z", 4));
}

TEST_P(StoreOperationsTest, CompareSetStoresOnlyIfTheValueMatches) {
  const struct {
    std::optional<std::string> before;
    std::string expected, desired, reply;
    std::optional<std::string> after;
  } kTable[] = {
      {std::nullopt, "", "new", "new", "new"}, {std::nullopt, "other", "new", "other", std::nullopt},
      {"old", "old", "new", "new", "new"},     {"old", "other", "new", "old", "old"},
      {"old", "", "new", "old", "old"},        {"", "", "new", "new", "new"},
  };
  for (const auto& row : kTable) {
    SCOPED_TRACE(absl::StrCat(row.before.value_or("absent"), ", ", row.expected));
    ASSERT_TRUE(client_->DeleteKey("k").ok());
    if (row.before) {
      ASSERT_TRUE(client_->Set("k", *row.before).ok());
    }
    EXPECT_EQ(client_->CompareSet("k", row.expected, row.desired).value(), row.reply);
    ASSERT_EQ(client_->Check({"k"}).value(), row.after.has_value());
    if (row.after) {
      EXPECT_EQ(client_->Get("k", kLong).value(), *row.after);
    }
  }
}

TEST_P(StoreOperationsTest, AddReadsAndWritesDecimalText) {
  const struct {
    std::optional<std::string> before;
    int64_t delta, sum;
  } kTable[] = {
      {std::nullopt, 0, 0},
      {std::nullopt, -5, -5},
      {"5", -7, -2},
      {" \t\n12abc", 1, 13},
      {"+7", 0, 7},
      {"9223372036854775807", 1, INT64_MIN},
      {"-9223372036854775808", -1, INT64_MAX},
      {"99999999999999999999", 0, INT64_MAX},
  };
  for (const auto& row : kTable) {
    SCOPED_TRACE(row.before.value_or("absent"));
    ASSERT_TRUE(client_->DeleteKey("n").ok());
    if (row.before) {
      ASSERT_TRUE(client_->Set("n", *row.before).ok());
    }
    EXPECT_EQ(client_->Add("n", row.delta).value(), row.sum);
    EXPECT_EQ(client_->Get("n", kLong).value(), absl::StrCat(row.sum));
  }
}

TEST_P(StoreOperationsTest, AddToANonNumberFailsAndDoesNotChangeTheValue) {
  for (const absl::string_view text : {"", "abc", "-", "+-1"}) {
    SCOPED_TRACE(text);
    const auto other = StorePortTest::Connect(OtherThan(GetParam()));
    ASSERT_TRUE(other->Set("n", text).ok());
    ASSERT_TRUE(other->Check({"n"}).value());
    for (const bool barrier : {false, true}) {
      const auto refused = Connect();
      const absl::Status status = barrier ? refused->Barrier("n", 2, kLong) : refused->Add("n", 1).status();
      EXPECT_EQ(status.code(), Refusal(absl::StatusCode::kInvalidArgument)) << status;
    }
    EXPECT_EQ(other->Get("n", kLong).value(), text);
  }
}

TEST_P(StoreOperationsTest, CheckFindsKeysAndNonEmptyQueues) {
  EXPECT_TRUE(client_->Check({}).value());
  EXPECT_FALSE(client_->Check({"k"}).value());
  ASSERT_TRUE(client_->Set("k", "").ok());
  EXPECT_TRUE(client_->Check({"k", "k"}).value());
  EXPECT_FALSE(client_->Check({"k", "q"}).value());
  ASSERT_TRUE(client_->QueuePush("q", "item").ok());
  EXPECT_TRUE(client_->Check({"k", "q"}).value());
  ASSERT_TRUE(client_->TryQueuePop("q").value().has_value());
  EXPECT_FALSE(client_->Check({"k", "q"}).value());
}

TEST_P(StoreOperationsTest, CountsAndListsKeysButNotQueues) {
  EXPECT_EQ(client_->NumKeys().value(), 0);
  EXPECT_THAT(client_->ListKeys().value(), IsEmpty());
  RawPeer torch(port());
  torch.Send(Hex("00 ce f7 85 3c 04 05 .. 69 6e 69 74 2f 01 .."));  // VALIDATE, ADD "init/"
  ASSERT_EQ(ToHex(torch.Receive(8)), ToHex(Hex("01 ..")));
  ASSERT_TRUE(client_->Set("a", "").ok());
  ASSERT_TRUE(client_->Set("b/c", "").ok());
  ASSERT_TRUE(client_->QueuePush("q", "item").ok());
  EXPECT_EQ(client_->NumKeys().value(), 3);
  EXPECT_THAT(client_->ListKeys().value(), UnorderedElementsAre("a", "b/c"));
}

TEST_P(StoreOperationsTest, DeleteKeyReturnsWhetherTheKeyExistedAndKeepsQueues) {
  ASSERT_TRUE(client_->Set("x", "").ok());
  ASSERT_TRUE(client_->QueuePush("x", "item").ok());
  EXPECT_TRUE(client_->DeleteKey("x").value());
  EXPECT_FALSE(client_->DeleteKey("x").value());
  EXPECT_EQ(client_->QueueLen("x").value(), 1);
}

TEST_P(StoreOperationsTest, QueuesAreFirstInFirstOut) {
  EXPECT_EQ(client_->QueueLen("q").value(), 0);
  EXPECT_EQ(client_->TryQueuePop("q").value(), std::nullopt);
  for (const char* item : {"1", "", "3"}) ASSERT_TRUE(client_->QueuePush("q", item).ok());
  EXPECT_EQ(client_->QueueLen("q").value(), 3);
  EXPECT_EQ(client_->QueuePop("q", kLong).value(), "1");
  EXPECT_EQ(client_->TryQueuePop("q").value(), "");
  EXPECT_EQ(client_->QueuePop("q", kLong).value(), "3");
  EXPECT_EQ(client_->QueueLen("q").value(), 0);
}

TEST_P(StoreOperationsTest, AKeyAndAQueueMayHaveTheSameName) {
  ASSERT_TRUE(client_->Set("x", "value").ok());
  const absl::Status empty = client_->QueuePop("x", kLong).status();
  EXPECT_EQ(empty.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(empty.message()), HasSubstr("queue x is empty"));
  ASSERT_TRUE(client_->QueuePush("x", "item").ok());
  EXPECT_EQ(client_->Get("x", kLong).value(), "value");
  EXPECT_EQ(client_->QueuePop("x", kLong).value(), "item");
}

TEST_P(StoreOperationsTest, AcceptsTheLargestAllowedSizes) {
  std::string value(8 << 20, '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 7 + i / 251);
  const std::string key(8191, 'k');  // the client prepends a "/"
  ASSERT_TRUE(client_->Set(key, value).ok());
  EXPECT_TRUE(client_->Get(key, kLong).value() == value);
  ASSERT_TRUE(client_->QueuePush(key, value).ok());
  EXPECT_TRUE(client_->QueuePop(key, kLong).value() == value);
  const std::vector<std::string> keys(131'072, "k");
  EXPECT_FALSE(client_->Check(keys).value());
}

TEST_P(StoreOperationsTest, RequestsThatAreTooLargeAreNotSent) {
  const std::string key(8192, 'k'), value((8 << 20) + 1, 'v');
  const std::vector<std::string> keys(131'073, "k");
  const std::vector<StoreClient::Pair> pairs(9, {"k", absl::string_view(value).substr(1)});
  const std::pair<absl::Status, const char*> kCases[] = {
      {client_->Set(key, ""), "a key has 8193 bytes; at most 8192 are allowed"},
      {client_->Set("k", value), "a value has 8388609 bytes; at most 8388608 are allowed"},
      {client_->Append("k", value), "a value has 8388609 bytes"},
      {client_->CompareSet("k", value, "").status(), "a value has 8388609 bytes"},
      {client_->CompareSet("k", "", value).status(), "a value has 8388609 bytes"},
      {client_->QueuePush("k", value), "a value has 8388609 bytes"},
      {client_->MultiSet(pairs), "the request has more than 67108864 bytes"},
      {client_->Add(key, 1).status(), "a key has 8193 bytes"},
      {client_->Get(key, kLong).status(), "a key has 8193 bytes"},
      {client_->DeleteKey(key).status(), "a key has 8193 bytes"},
      {client_->TryQueuePop(key).status(), "a key has 8193 bytes"},
      {client_->QueueLen(key).status(), "a key has 8193 bytes"},
      {client_->Check(keys).status(), "131073 keys; at most 131072 are allowed"},
      {client_->Wait(keys, kLong), "131073 keys"},
      {client_->MultiGet(keys, kLong).status(), "131073 keys"},
      {client_->Barrier("k", 0, kLong), "the world size is 0"},
      {client_->Barrier(key, 1, kLong), "a key has 8193 bytes"},
  };
  for (const auto& [status, text] : kCases) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }
  EXPECT_EQ(client_->NumKeys().value(), 0);  // The client is still usable.
}

TEST_P(StoreOperationsTest, ARequestWithAReplyOfMoreThan64MiBIsRefused) {
  const std::string value(8 << 20, 'v');
  ASSERT_TRUE(client_->Set("v", value).ok());
  EXPECT_EQ(client_->MultiGet(std::vector<std::string>(7, "v"), kLong).value().size(), 7);
  const absl::Status refused = client_->MultiGet(std::vector<std::string>(8, "v"), kLong).status();
  EXPECT_EQ(refused.code(), Refusal(absl::StatusCode::kResourceExhausted)) << refused;
  EXPECT_EQ(Connect()->NumKeys().value(), 1);  // Other clients are not affected.
}

// No single request can set such a large value, but repeated Append calls can create it.
TEST_P(StoreOperationsTest, AValueOfMoreThan64MiBIsNotSent) {
  const std::string part(8 << 20, 'v');
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(client_->Append("v", part).ok());
  for (const bool swap : {false, true}) {
    const auto client = Connect();
    const absl::Status refused =
        swap ? client->CompareSet("v", "other", "new").status() : client->Get("v", kLong).status();
    EXPECT_EQ(refused.code(), Refusal(absl::StatusCode::kResourceExhausted)) << refused;
    if (GetParam() == Protocol::kGrpc) {
      EXPECT_THAT(std::string(refused.message()), HasSubstr("the reply would have more than 67108864 bytes"));
    }
  }
  EXPECT_TRUE(Connect()->DeleteKey("v").value());
}

TEST_P(StoreOperationsTest, ClientsOfBothProtocolsShareTheKeys) {
  constexpr int kEach = 50;
  std::vector<std::future<int>> adders;
  for (int i = 0; i < 6; ++i) {
    adders.push_back(
        RunAsync([client = StorePortTest::Connect(i % 2 == 0 ? Protocol::kC10d : Protocol::kGrpc), i] {
          int swaps = 0;
          for (int n = 0; n < kEach; ++n) {
            if (!client->Add("sum", 1).ok() || !client->Append("text", "x").ok()) return -1;
            // The clients use the key "lock" as a lock. The lock is free while the value is empty.
            const std::string mine = absl::StrCat(i);
            if (client->CompareSet("lock", "", mine).value() != mine) continue;
            ++swaps;
            if (client->CompareSet("lock", mine, "").value() != "") return -1;
          }
          return swaps;
        }));
  }
  int swaps = 0;
  for (auto& adder : adders) {
    const int mine = adder.get();
    ASSERT_GE(mine, 0);
    swaps += mine;
  }
  EXPECT_GT(swaps, 0);
  EXPECT_EQ(client_->Get("sum", kLong).value(), absl::StrCat(6 * kEach));
  EXPECT_EQ(client_->Get("text", kLong).value().size(), 6u * kEach);
}

DDPRUN_FOR_EACH_PROTOCOL(StoreOperationsTest);

}  // namespace
}  // namespace ddprun
