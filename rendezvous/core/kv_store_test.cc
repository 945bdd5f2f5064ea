#include "rendezvous/core/kv_store.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

// The fixture has a store and records the connections that the store has woken.
class KvStoreTest : public testing::Test {
 protected:
  void Set(const std::string& key, const std::string& value) {
    ASSERT_TRUE(store_.Set(key, value, &woken_).ok());
  }
  std::string CompareSet(const std::string& key, const std::string& expected, const std::string& desired) {
    const auto value = store_.CompareSet(key, expected, desired, &woken_);
    return value.ok() ? std::string(*value) : value.status().ToString();
  }
  // Returns the value in quotes, or "missing".
  std::string Value(const std::string& key) {
    return store_.Contains(key) ? absl::StrCat("'", store_.Get(key), "'") : "missing";
  }
  void Push(const std::string& name, const std::string& item) {
    ASSERT_TRUE(store_.QueuePush(name, item, &woken_).ok());
  }
  // Returns whether all keys are ready.
  bool Wait(int conn, std::vector<absl::string_view> keys) {
    const auto ready = store_.Wait(ConnId(conn), keys);
    EXPECT_TRUE(ready.ok()) << ready.status();
    return ready.ok() && *ready;
  }
  bool Barrier(int conn, const std::string& key, int64_t world_size) {
    const auto open = store_.Barrier(ConnId(conn), key, world_size, &woken_);
    EXPECT_TRUE(open.ok()) << open.status();
    return open.ok() && *open;
  }
  // Returns the connections woken since the last call, in order, such as "1 2".
  std::string Woken() { return absl::StrJoin(std::exchange(woken_, {}), " ", absl::StreamFormatter()); }

  KvStore store_;
  KvStore::Woken woken_;
};

TEST_F(KvStoreTest, SetGetDelete) {
  EXPECT_EQ(Value("k"), "missing");
  Set("k", "v1");
  EXPECT_EQ(Value("k"), "'v1'");
  Set("k", "");
  EXPECT_EQ(Value("k"), "''");
  EXPECT_EQ(store_.NumKeys(), 1);
  EXPECT_TRUE(store_.DeleteKey("k"));
  EXPECT_FALSE(store_.DeleteKey("k"));
  EXPECT_EQ(Value("k"), "missing");
  EXPECT_EQ(store_.NumKeys(), 0);
}

TEST_F(KvStoreTest, KeysAndValuesMayContainAnyByte) {
  const std::string key("\0\xff/", 3), value("a\0b", 3);
  Set(key, value);
  Set("", "empty key");
  EXPECT_EQ(store_.Get(key), value);
  EXPECT_EQ(Value(""), "'empty key'");
}

TEST_F(KvStoreTest, CompareSetReturnsTheResultingValue) {
  EXPECT_EQ(CompareSet("absent", "x", "y"), "x");  // PyTorch also returns `expected`
  EXPECT_EQ(Value("absent"), "missing");
  EXPECT_EQ(CompareSet("k", "", "a"), "a");
  EXPECT_EQ(CompareSet("k", "", "b"), "a");
  EXPECT_EQ(CompareSet("k", "x", "b"), "a");
  EXPECT_EQ(Value("k"), "'a'");
  EXPECT_EQ(CompareSet("k", "a", "b"), "b");
  EXPECT_EQ(Value("k"), "'b'");
}

TEST_F(KvStoreTest, CompareSetWakesWaitersIfTheKeyExistsAfterwards) {
  EXPECT_FALSE(Wait(1, {"k"}));
  CompareSet("k", "x", "y");
  EXPECT_EQ(Woken(), "");
  CompareSet("k", "", "y");
  EXPECT_EQ(Woken(), "1");
}

TEST_F(KvStoreTest, AddReadsAndWritesDecimalText) {
  const struct {
    std::optional<std::string> before;
    int64_t delta;
    std::optional<std::string> after;  // nullopt if Add fails
  } kTable[] = {
      {std::nullopt, 0, "0"},
      {std::nullopt, 5, "5"},
      {"5", -7, "-2"},
      {" 12abc", 1, "13"},
      {"\t\n+7", 0, "7"},
      {"-0", 0, "0"},
      {"12 34", 1, "13"},
      {"9223372036854775807", 1, "-9223372036854775808"},
      {"-9223372036854775808", -1, "9223372036854775807"},
      {"9223372036854775808", 0, "9223372036854775807"},  // strtoll clamps
      {"-9223372036854775809", 0, "-9223372036854775808"},
      {"99999999999999999999999", 0, "9223372036854775807"},
      {"", 1, std::nullopt},
      {"abc", 1, std::nullopt},
      {"-", 1, std::nullopt},
      {"+-1", 1, std::nullopt},
  };
  for (const auto& row : kTable) {
    store_.DeleteKey("n");
    if (row.before) Set("n", *row.before);
    const absl::StatusOr<int64_t> sum = store_.Add("n", row.delta, &woken_);
    ASSERT_EQ(sum.ok(), row.after.has_value()) << row.before.value_or("missing");
    if (row.after) {
      EXPECT_EQ(absl::StrCat(*sum), *row.after);
      EXPECT_EQ(store_.Get("n"), *row.after);
    } else {
      EXPECT_EQ(sum.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(store_.Get("n"), *row.before);
    }
  }
}

TEST_F(KvStoreTest, AppendCreatesAndConcatenates) {
  EXPECT_FALSE(Wait(1, {"k"}));
  ASSERT_TRUE(store_.Append("k", "ab", &woken_).ok());
  EXPECT_EQ(Woken(), "1");
  ASSERT_TRUE(store_.Append("k", "cd", &woken_).ok());
  EXPECT_EQ(Value("k"), "'abcd'");
}

TEST_F(KvStoreTest, ListsAllKeysInOrder) {
  for (const char* key : {"b", "init/", "a", "", "ab"}) Set(key, "");
  Push("q", "not a key");
  std::vector<std::string> keys;
  store_.ForEachKey([&](absl::string_view key) { keys.emplace_back(key); });
  EXPECT_EQ(keys, (std::vector<std::string>{"", "a", "ab", "b", "init/"}));
  EXPECT_EQ(store_.NumKeys(), 5);
}

TEST_F(KvStoreTest, AWaitForNoKeysEndsImmediately) {
  EXPECT_TRUE(Wait(1, {}));
  EXPECT_TRUE(store_.Ready(std::vector<absl::string_view>{}));
  EXPECT_FALSE(store_.IsWaiting(ConnId(1)));
}

TEST_F(KvStoreTest, WaitEndsWhenTheLastMissingKeyIsSet) {
  Set("a", "");
  EXPECT_TRUE(Wait(1, {"a"}));
  EXPECT_FALSE(Wait(1, {"a", "b", "c"}));
  Set("c", "");
  EXPECT_EQ(Woken(), "");
  Set("c", "again");
  EXPECT_EQ(Woken(), "");
  Set("b", "");
  EXPECT_EQ(Woken(), "1");
  EXPECT_EQ(store_.NumWaiting(), 0);
}

TEST_F(KvStoreTest, AKeyThatWasSetAndDeletedCountsAsSeen) {
  EXPECT_FALSE(Wait(1, {"a", "b"}));
  Set("a", "");
  store_.DeleteKey("a");
  Set("b", "");
  EXPECT_EQ(Woken(), "1");
}

TEST_F(KvStoreTest, AKeyListedTwiceIsCountedTwice) {
  EXPECT_FALSE(Wait(1, {"a", "a", "b"}));
  Set("a", "");
  EXPECT_EQ(Woken(), "");
  Set("b", "");
  EXPECT_EQ(Woken(), "1");
}

TEST_F(KvStoreTest, WaitersAreWokenInTheOrderOfTheirWaits) {
  for (const int conn : {3, 1, 2}) EXPECT_FALSE(Wait(conn, {"k"}));
  ASSERT_TRUE(store_.Add("k", 1, &woken_).ok());
  EXPECT_EQ(Woken(), "3 1 2");
}

TEST_F(KvStoreTest, ANewWaitReplacesTheOldOne) {
  EXPECT_FALSE(Wait(1, {"a"}));
  EXPECT_FALSE(Wait(1, {"b"}));
  Set("a", "");
  EXPECT_EQ(Woken(), "");
  EXPECT_TRUE(store_.IsWaiting(ConnId(1)));
  EXPECT_TRUE(Wait(1, {"a"}));
  EXPECT_FALSE(store_.IsWaiting(ConnId(1)));
  Set("b", "");
  EXPECT_EQ(Woken(), "");
}

TEST_F(KvStoreTest, AForgottenWaitIsNeverWoken) {
  EXPECT_FALSE(Wait(1, {"a", "b"}));
  EXPECT_FALSE(Wait(2, {"b"}));
  store_.Forget(ConnId(1));
  store_.Forget(ConnId(1));
  store_.Forget(ConnId(9));
  Set("a", "");
  Set("b", "");
  EXPECT_EQ(Woken(), "2");
}

TEST_F(KvStoreTest, QueuesAreFifoAndSeparateFromKeys) {
  std::string item;
  EXPECT_FALSE(store_.QueuePop("q", &item));
  Set("q", "value");
  Push("q", "1");
  Push("q", "2");
  EXPECT_EQ(store_.QueueLen("q"), 2);
  EXPECT_TRUE(store_.DeleteKey("q"));
  EXPECT_EQ(store_.QueueLen("q"), 2);
  ASSERT_TRUE(store_.QueuePop("q", &item));
  EXPECT_EQ(item, "1");
  ASSERT_TRUE(store_.QueuePop("q", &item));
  EXPECT_EQ(item, "2");
  EXPECT_FALSE(store_.QueuePop("q", &item));
  EXPECT_EQ(store_.QueueLen("q"), 0);
}

TEST_F(KvStoreTest, APushWakesTheOldestWaiter) {
  EXPECT_FALSE(Wait(1, {"q"}));
  EXPECT_FALSE(Wait(2, {"q"}));
  Push("q", "x");
  EXPECT_EQ(Woken(), "1");
  // The woken connection no longer waits for the queue. Its next wait is independent.
  EXPECT_FALSE(Wait(1, {"other"}));
  Push("q", "y");
  EXPECT_EQ(Woken(), "2");
  EXPECT_TRUE(store_.IsWaiting(ConnId(1)));
}

TEST_F(KvStoreTest, ANonemptyQueueIsReady) {
  Push("q", "x");
  EXPECT_TRUE(Wait(1, {"q"}));
  EXPECT_FALSE(Wait(1, {"q", "k"}));
  Set("k", "");
  EXPECT_EQ(Woken(), "1");
}

TEST_F(KvStoreTest, BarrierOpensWhenAllHaveArrived) {
  EXPECT_FALSE(Barrier(1, "b", 3));
  EXPECT_FALSE(Barrier(2, "b", 3));
  EXPECT_EQ(Value("b"), "'2'");
  EXPECT_EQ(Woken(), "");
  EXPECT_TRUE(Barrier(3, "b", 3));
  EXPECT_EQ(Woken(), "1 2");
  EXPECT_TRUE(Barrier(4, "b", 3));  // the count never decreases
  EXPECT_EQ(Value("b"), "'4'");
  EXPECT_EQ(store_.NumWaiting(), 0);
}

TEST_F(KvStoreTest, ACancelledBarrierStaysCounted) {
  EXPECT_FALSE(Barrier(1, "b", 2));
  store_.Forget(ConnId(1));
  EXPECT_TRUE(Barrier(1, "b", 2));
  EXPECT_EQ(Woken(), "");
}

TEST_F(KvStoreTest, TheFirstCallerOfABarrierEndsWaitsForItsKey) {
  EXPECT_FALSE(Wait(1, {"b"}));
  EXPECT_FALSE(Barrier(2, "b", 2));
  EXPECT_EQ(Woken(), "1");
}

TEST_F(KvStoreTest, ABarrierAtANonnumericValueIsRefused) {
  Set("b", "text");
  EXPECT_EQ(store_.Barrier(ConnId(1), "b", 2, &woken_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(store_.IsWaiting(ConnId(1)));
}

TEST(KvStoreLimitTest, GrowthBeyondTheLimitIsRefusedAndChangesNothing) {
  KvStore store({.max_bytes = 1000});
  KvStore::Woken woken;
  const std::string big(700, 'x');
  ASSERT_TRUE(store.Set("k", big, &woken).ok());
  const uint64_t before = store.bytes();

  const absl::Status refused = store.Set("other", big, &woken);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused.message().find("of 1000 bytes are used"), absl::string_view::npos) << refused;
  EXPECT_FALSE(store.Append("k", big, &woken).ok());
  EXPECT_FALSE(store.QueuePush("q", big, &woken).ok());
  EXPECT_FALSE(store.CompareSet("k", big, big + big, &woken).ok());
  const KvStore::Pair pairs[] = {{"small", "1"}, {"other", big}};
  EXPECT_FALSE(store.MultiSet(pairs, &woken).ok());
  const std::string long_key(300, 'w');
  EXPECT_FALSE(store.Wait(ConnId(1), std::vector<absl::string_view>{long_key}).ok());
  EXPECT_FALSE(store.Barrier(ConnId(1), long_key, 2, &woken).ok());
  EXPECT_EQ(store.bytes(), before);
  EXPECT_EQ(store.NumKeys(), 1);
  EXPECT_EQ(store.NumWaiting(), 0);

  EXPECT_TRUE(store.Set("k", big, &woken).ok());  // a value of the same size needs no more memory
  EXPECT_TRUE(store.Set("k", "", &woken).ok());
  EXPECT_TRUE(store.Set("other", big, &woken).ok());
}

TEST(KvStoreLimitTest, ChargedBytesCountAgainstTheLimit) {
  KvStore store({.max_bytes = 1000});
  KvStore::Woken woken;
  ASSERT_TRUE(store.Charge(800, "a buffer").ok());
  EXPECT_EQ(store.bytes(), 800);
  const absl::Status full = store.Charge(201, "a buffer");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(full.message(), "the store is full: 800 of 1000 bytes are used, a buffer needs 201 more");
  EXPECT_FALSE(store.Set("key", std::string(300, 'x'), &woken).ok());
  store.Refund(800);
  EXPECT_TRUE(store.Set("key", std::string(300, 'x'), &woken).ok());
}

TEST(KvStoreLimitTest, AllBytesAreReleased) {
  KvStore store;
  KvStore::Woken woken;
  ASSERT_TRUE(store.Set("k", "value", &woken).ok());
  ASSERT_TRUE(store.Append("k", "more", &woken).ok());
  ASSERT_TRUE(store.Set("k", "less", &woken).ok());
  ASSERT_TRUE(store.QueuePush("q", "item", &woken).ok());
  ASSERT_TRUE(store.Wait(ConnId(1), std::vector<absl::string_view>{"a", "b", "a"}).ok());
  ASSERT_TRUE(store.Wait(ConnId(2), std::vector<absl::string_view>{"a"}).ok());
  EXPECT_GT(store.bytes(), 0);
  store.DeleteKey("k");
  std::string item;
  ASSERT_TRUE(store.QueuePop("q", &item));
  ASSERT_TRUE(store.Set("a", "", &woken).ok());
  store.DeleteKey("a");
  store.Forget(ConnId(1));
  EXPECT_EQ(store.bytes(), 0);
}

// A simple, slow reference implementation of waits.
class ReferenceWaits {
 public:
  bool Wait(int conn, const std::vector<std::string>& keys) {
    Forget(conn);
    std::vector<std::string> missing;
    for (const std::string& key : keys) {
      if (!present_.contains(key)) missing.push_back(key);
    }
    if (missing.empty()) return true;
    waits_.push_back({conn, missing});
    return false;
  }
  std::vector<int> Set(const std::string& key) {
    present_.insert(key);
    std::vector<int> woken;
    for (auto it = waits_.begin(); it != waits_.end();) {
      std::erase(it->second, key);
      if (it->second.empty()) {
        woken.push_back(it->first);
        it = waits_.erase(it);
      } else {
        ++it;
      }
    }
    return woken;
  }
  void Delete(const std::string& key) { present_.erase(key); }
  void Forget(int conn) {
    std::erase_if(waits_, [&](const auto& wait) { return wait.first == conn; });
  }

 private:
  std::set<std::string> present_;
  std::vector<std::pair<int, std::vector<std::string>>> waits_;
};

TEST(KvStorePropertyTest, WaitsMatchTheReference) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  KvStore store;
  ReferenceWaits reference;
  int num_woken = 0;
  for (int step = 0; step < 20'000; ++step) {
    const int conn = pick(6);
    const std::string key(1, static_cast<char>('a' + pick(8)));
    switch (pick(6)) {
      case 0:
      case 1: {
        std::vector<std::string> keys(pick(4));
        for (std::string& k : keys) k = std::string(1, static_cast<char>('a' + pick(8)));
        const auto ready = store.Wait(ConnId(conn), std::vector<absl::string_view>(keys.begin(), keys.end()));
        ASSERT_TRUE(ready.ok());
        ASSERT_EQ(*ready, reference.Wait(conn, keys)) << "step " << step;
        break;
      }
      case 2: {
        KvStore::Woken woken;
        ASSERT_TRUE(store.Set(key, "", &woken).ok());
        std::vector<int> got;
        for (const ConnId c : woken) got.push_back(static_cast<int>(c.value()));
        ASSERT_EQ(got, reference.Set(key)) << "step " << step;
        num_woken += static_cast<int>(got.size());
        break;
      }
      case 3:
      case 4:
        store.DeleteKey(key);
        reference.Delete(key);
        break;
      case 5:
        store.Forget(ConnId(conn));
        reference.Forget(conn);
        break;
    }
  }
  EXPECT_GT(num_woken, 100);
  for (int conn = 0; conn < 6; ++conn) store.Forget(ConnId(conn));
  for (char c = 'a'; c < 'i'; ++c) store.DeleteKey(std::string(1, c));
  EXPECT_EQ(store.bytes(), 0);
}

}  // namespace
}  // namespace ddprun
