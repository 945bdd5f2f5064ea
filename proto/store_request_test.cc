#include "proto/store_request.h"

#include <string>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

constexpr c10d::ParserLimits kLimits = {
    .max_key_bytes = 4, .max_value_bytes = 10, .max_list_items = 3, .max_request_bytes = 60};

std::string Text(const StoreRequestCheck& check) { return std::string(check.status().message()); }

TEST(StoreRequestCheckTest, AcceptsRequestsWithinTheLimits) {
  EXPECT_TRUE(StoreRequestCheck("SET", kLimits).Key("1234").Value("1234567890").status().ok());
  EXPECT_TRUE(StoreRequestCheck("SET", kLimits).Key(std::string(1, '\0')).Value("").status().ok());
  EXPECT_TRUE(StoreRequestCheck("WAIT", kLimits).NumItems(0).status().ok());
  EXPECT_TRUE(StoreRequestCheck("WAIT", kLimits).NumItems(3).Key("a").Key("b").Key("c").status().ok());
  EXPECT_TRUE(StoreRequestCheck("BARRIER", kLimits).Key("k").WorldSize(1).status().ok());
}

TEST(StoreRequestCheckTest, ErrorsNameTheDefect) {
  EXPECT_EQ(Text(StoreRequestCheck("SET", kLimits).Key("12345")),
            "SET: a key has 5 bytes; at most 4 are allowed");
  EXPECT_EQ(Text(StoreRequestCheck("SET", kLimits).Key("")),
            "SET: a key is empty; keys have at least 1 byte");
  EXPECT_EQ(Text(StoreRequestCheck("SET", kLimits).Key("k").Value("12345678901")),
            "SET: a value has 11 bytes; at most 10 are allowed");
  EXPECT_EQ(Text(StoreRequestCheck("WAIT", kLimits).NumItems(4)),
            "WAIT: the request has 4 keys; at most 3 are allowed");
  EXPECT_EQ(Text(StoreRequestCheck("BARRIER", kLimits).WorldSize(0)),
            "BARRIER: the world size is 0; it must be at least 1");
  EXPECT_EQ(StoreRequestCheck("SET", kLimits).Key("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(StoreRequestCheckTest, KeepsTheFirstError) {
  EXPECT_EQ(Text(StoreRequestCheck("WAIT", kLimits).NumItems(4).Key("").Value("12345678901").WorldSize(-1)),
            "WAIT: the request has 4 keys; at most 3 are allowed");
}

TEST(StoreRequestCheckTest, MeasuresTheRequestSizeInTheC10dEncoding) {
  // The opcode takes 1 byte, and the count takes 8 bytes. In each of the 3 pairs, the key takes 8 + 1
  // bytes, and the empty value takes 8 bytes. The sum is 60 bytes.
  StoreRequestCheck check("MULTI_SET", kLimits);
  check.NumItems(3);
  for (int i = 0; i < 3; ++i) check.Key("k").Value("");
  EXPECT_TRUE(check.status().ok()) << check.status();
  EXPECT_EQ(Text(check.Value("")), "MULTI_SET: the request has more than 60 bytes");
}

}  // namespace
}  // namespace ddprun
