// The sample requests were captured from PyTorch 2.14.1 (versioned), 2.1.2 (dialect B) and 1.13.1 (dialect
// A).
#include "proto/c10d_wire.h"

#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "proto/c10d_parser.h"

namespace ddprun::c10d {
namespace {

// Decodes hex such as "00 ce f7". Blanks are ignored. ".." stands for seven zero bytes, the upper bytes of a
// u64 below 256.
std::string Hex(absl::string_view text) {
  return absl::HexStringToBytes(absl::StrReplaceAll(text, {{"..", "00000000000000"}, {" ", ""}}).c_str());
}

std::string Quote(absl::string_view bytes) { return absl::StrCat("'", absl::CHexEscape(bytes), "'"); }

// Returns `request` as one line of text, which tests can compare.
std::string Describe(const Request& request) {
  std::string out(Info(OpOf(request)).name);
  const auto add = [&](const auto&... parts) { absl::StrAppend(&out, " ", parts...); };
  const auto list = [&](absl::Span<const absl::string_view> keys) {
    add("[", absl::StrJoin(keys, " ", [](std::string* o, absl::string_view k) { *o += Quote(k); }), "]");
  };
  struct Visitor {
    decltype(add)& a;
    decltype(list)& l;
    void operator()(const Ping& r) const { a(r.nonce); }
    void operator()(const Set& r) const { a(Quote(r.key), " ", Quote(r.value)); }
    void operator()(const CompareSet& r) const {
      a(Quote(r.key), " ", Quote(r.expected), " ", Quote(r.desired));
    }
    void operator()(const Get& r) const { a(Quote(r.key)); }
    void operator()(const Add& r) const { a(Quote(r.key), " ", r.delta); }
    void operator()(const Check& r) const { l(r.keys); }
    void operator()(const Wait& r) const { l(r.keys); }
    void operator()(const CancelWait&) const {}
    void operator()(const NumKeys&) const {}
    void operator()(const DeleteKey& r) const { a(Quote(r.key)); }
    void operator()(const Append& r) const { a(Quote(r.key), " ", Quote(r.value)); }
    void operator()(const MultiGet& r) const { l(r.keys); }
    void operator()(const MultiSet& r) const {
      for (const KeyValue& pair : r.pairs) a(Quote(pair.key), "=", Quote(pair.value));
    }
    void operator()(const QueuePush& r) const { a(Quote(r.key), " ", Quote(r.value)); }
    void operator()(const QueuePop& r) const { a(Quote(r.key)); }
    void operator()(const QueueLen& r) const { a(Quote(r.key)); }
    void operator()(const ListKeys&) const {}
    void operator()(const Barrier& r) const { a(Quote(r.key), " ", r.world_size); }
  };
  std::visit(Visitor{add, list}, request);
  return out;
}

// The parser's output for one connection.
struct Parsed {
  std::vector<std::string> requests;
  absl::Status status;
  Dialect dialect;
  bool needs_grace;
};

Parsed Parse(const std::vector<std::string>& pieces, ParserLimits limits = {},
             LegacyDialect legacy = LegacyDialect::kAuto) {
  Parser parser(limits, legacy);
  Parsed parsed;
  for (const std::string& piece : pieces) {
    // Each piece is a temporary copy, so that AddressSanitizer catches views into an earlier piece.
    const auto bytes = std::make_unique<char[]>(piece.size());
    std::copy(piece.begin(), piece.end(), bytes.get());
    parsed.status = parser.Feed({bytes.get(), piece.size()}, [&](const Request& r) {
      parsed.requests.push_back(Describe(r));
      return true;
    });
  }
  parsed.dialect = parser.dialect();
  parsed.needs_grace = parser.NeedsGrace();
  return parsed;
}

std::vector<std::string> InBytes(absl::string_view bytes) {
  std::vector<std::string> pieces;
  for (const char c : bytes) pieces.emplace_back(1, c);
  return pieces;
}

constexpr char kGreeting[] = "00 ce f7 85 3c";

struct Sample {
  const char* hex;
  const char* request;
};

constexpr Sample kVersioned[] = {
    {"0d 37 21 00 00", "PING 8503"},
    {"04 05 .. 69 6e 69 74 2f 01 ..", "ADD 'init/' 1"},
    {"01 02 .. 2f 6b 02 .. 76 31", "SET '/k' 'v1'"},
    {"06 01 .. 02 .. 2f 6b", "WAIT ['/k']"},
    {"03 02 .. 2f 6b", "GET '/k'"},
    {"04 02 .. 2f 6e f9 ff ff ff ff ff ff ff", "ADD '/n' -7"},
    {"05 02 .. 02 .. 2f 6b 03 .. 2f 7a 7a", "CHECK ['/k' '/zz']"},
    {"05 00 ..", "CHECK []"},
    {"02 03 .. 2f 63 73 00 .. 01 .. 61", "COMPARE_SET '/cs' '' 'a'"},
    {"07", "GETNUMKEYS"},
    {"08 02 .. 2f 6b", "DELETE_KEY '/k'"},
    {"09 03 .. 2f 61 70 02 .. 78 79", "APPEND '/ap' 'xy'"},
    {"0b 02 .. 02 .. 2f 61 01 .. 31 02 .. 2f 62 02 .. 32 32", "MULTI_SET '/a'='1' '/b'='22'"},
    {"0b 00 ..", "MULTI_SET"},
    {"0a 02 .. 02 .. 2f 61 02 .. 2f 62", "MULTI_GET ['/a' '/b']"},
    {"06 01 .. 08 .. 2f 6d 69 73 73 69 6e 67", "WAIT ['/missing']"},
    {"0c", "CANCEL_WAIT"},
    {"11", "LIST_KEYS"},
    {"12 04 .. 2f 62 61 72 01 ..", "BARRIER '/bar' 1"},
    {"0e 02 .. 2f 71 04 .. 69 74 65 6d", "QUEUE_PUSH '/q' 'item'"},
    {"10 02 .. 2f 71", "QUEUE_LEN '/q'"},
    {"0f 02 .. 2f 71", "QUEUE_POP '/q'"},
    {"01 02 .. 00 ff 00 ..", "SET '\\x00\\xff' ''"},
};

constexpr Sample kA[] = {
    {"03 05 .. 69 6e 69 74 2f 01 ..", "ADD 'init/' 1"},
    {"00 02 .. 2f 6b 02 .. 76 31", "SET '/k' 'v1'"},
    {"05 01 .. 02 .. 2f 6b", "WAIT ['/k']"},
    {"02 02 .. 2f 6b", "GET '/k'"},
    {"01 03 .. 2f 63 73 01 .. 61 01 .. 62", "COMPARE_SET '/cs' 'a' 'b'"},
    {"04 01 .. 02 .. 2f 6b", "CHECK ['/k']"},
    {"06", "GETNUMKEYS"},
};

constexpr Sample kB[] = {
    {"03 05 .. 69 6e 69 74 2f 01 ..", "ADD 'init/' 1"},
    {"06", "GETNUMKEYS"},
    {"08 03 .. 2f 61 70 02 .. 78 79", "APPEND '/ap' 'xy'"},
    {"07 02 .. 2f 6b", "DELETE_KEY '/k'"},
    {"0a 02 .. 02 .. 2f 61 01 .. 31 02 .. 2f 62 02 .. 32 32", "MULTI_SET '/a'='1' '/b'='22'"},
    {"05 02 .. 02 .. 2f 61 02 .. 2f 62", "WAIT ['/a' '/b']"},
    {"09 02 .. 02 .. 2f 61 02 .. 2f 62", "MULTI_GET ['/a' '/b']"},
    {"05 01 .. 08 .. 2f 6d 69 73 73 69 6e 67", "WAIT ['/missing']"},
    {"0b", "CANCEL_WAIT"},
};

struct Conversation {
  std::string bytes;
  std::vector<std::string> requests;
};

Conversation Join(absl::string_view greeting, absl::Span<const Sample> samples) {
  Conversation conversation{.bytes = Hex(greeting), .requests = {}};
  for (const Sample& sample : samples) {
    conversation.bytes += Hex(sample.hex);
    conversation.requests.push_back(sample.request);
  }
  return conversation;
}

TEST(ParserTest, ParsesEachRequestWholeAndByteByByte) {
  const struct {
    const char* greeting;
    absl::Span<const Sample> samples;
    LegacyDialect legacy;
  } kTables[] = {{kGreeting, kVersioned, LegacyDialect::kAuto},
                 {"", kA, LegacyDialect::kAuto},
                 {"", kA, LegacyDialect::kA},
                 {"", kB, LegacyDialect::kAuto},
                 {"", kB, LegacyDialect::kB}};
  for (const auto& table : kTables) {
    for (const Sample& sample : table.samples) {
      const std::string bytes = Hex(table.greeting) + Hex(sample.hex);
      for (const auto& pieces : {std::vector<std::string>{bytes}, InBytes(bytes)}) {
        const Parsed parsed = Parse(pieces, {}, table.legacy);
        EXPECT_TRUE(parsed.status.ok()) << parsed.status;
        EXPECT_EQ(parsed.requests, std::vector<std::string>{sample.request}) << sample.hex;
      }
    }
  }
}

TEST(ParserTest, ParsesPipelinedRequestsInTwoAndThreePieces) {
  const Conversation conversations[] = {Join(kGreeting, kVersioned), Join("", kA), Join("", kB)};
  const Dialect dialects[] = {Dialect::kVersioned, Dialect::kLegacy, Dialect::kB};
  for (int i = 0; i < 3; ++i) {
    const std::string& bytes = conversations[i].bytes;
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
      for (const size_t second : {cut, (cut + bytes.size()) / 2}) {
        const Parsed parsed =
            Parse({bytes.substr(0, cut), bytes.substr(cut, second - cut), bytes.substr(second)});
        ASSERT_TRUE(parsed.status.ok()) << parsed.status;
        ASSERT_EQ(parsed.requests, conversations[i].requests) << "cut at " << cut << " and " << second;
        EXPECT_EQ(parsed.dialect, dialects[i]);
      }
    }
  }
}

TEST(ParserTest, ParsesPipelinedRequestsInRandomPieces) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const Conversation conversation = Join(kGreeting, kVersioned);
  for (int i = 0; i < 500; ++i) {
    std::vector<std::string> pieces;
    for (size_t at = 0; at < conversation.bytes.size();) {
      const size_t size = std::uniform_int_distribution<size_t>(1, 20)(random);
      pieces.push_back(conversation.bytes.substr(at, size));
      at += size;
    }
    ASSERT_EQ(Parse(pieces).requests, conversation.requests);
  }
}

TEST(ParserTest, PausesAndResumes) {
  const Conversation conversation = Join(kGreeting, kVersioned);
  Parser parser;
  std::vector<std::string> requests;
  const auto one = [&](const Request& r) {
    requests.push_back(Describe(r));
    return false;
  };
  ASSERT_TRUE(parser.Feed(conversation.bytes, one).ok());
  for (size_t i = 1; i < conversation.requests.size(); ++i) {
    ASSERT_EQ(requests.size(), i);
    ASSERT_TRUE(parser.Feed("", one).ok());
  }
  EXPECT_EQ(requests, conversation.requests);
  EXPECT_EQ(parser.buffered_bytes(), 0);
}

TEST(ParserTest, OpcodeEightIsDeleteKeyAfterTheGracePeriod) {
  Parser parser;
  std::vector<std::string> requests;
  const auto take = [&](const Request& r) {
    requests.push_back(Describe(r));
    return true;
  };
  for (const std::string& byte : InBytes(Hex("08 02 .. 2f 6b"))) {
    EXPECT_FALSE(parser.NeedsGrace());
    ASSERT_TRUE(parser.Feed(byte, take).ok());
  }
  EXPECT_TRUE(parser.NeedsGrace());
  EXPECT_TRUE(requests.empty());
  ASSERT_TRUE(parser.EndGrace(take).ok());
  EXPECT_EQ(requests, std::vector<std::string>{"DELETE_KEY '/k'"});
  EXPECT_EQ(parser.dialect(), Dialect::kA);

  // The connection now has a dialect, so another opcode 8 needs no grace period.
  ASSERT_TRUE(parser.Feed(Hex("08 02 .. 2f 6c 06"), take).ok());
  EXPECT_EQ(requests, (std::vector<std::string>{"DELETE_KEY '/k'", "DELETE_KEY '/l'", "GETNUMKEYS"}));
  EXPECT_FALSE(parser.NeedsGrace());
}

TEST(ParserTest, OpcodeEightIsAppendIfMoreBytesFollow) {
  const std::string bytes = Hex("08 02 .. 2f 6b 01 .. 78");
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const Parsed parsed = Parse({bytes.substr(0, cut), bytes.substr(cut)});
    EXPECT_EQ(parsed.requests, std::vector<std::string>{"APPEND '/k' 'x'"});
    EXPECT_EQ(parsed.dialect, Dialect::kB);
  }
}

TEST(ParserTest, ForcedDialectsNeedNoGracePeriod) {
  const std::string bytes = Hex("08 02 .. 2f 6b");
  EXPECT_EQ(Parse({bytes}, {}, LegacyDialect::kA).requests, std::vector<std::string>{"DELETE_KEY '/k'"});
  EXPECT_EQ(Parse({bytes}, {}, LegacyDialect::kB).requests, std::vector<std::string>{});
  EXPECT_FALSE(Parse({bytes}, {}, LegacyDialect::kB).needs_grace);
}

TEST(ParserTest, ErrorsNameTheBadInput) {
  const struct {
    const char* hex;
    const char* error;
  } kBad[] = {
      {"00 ce f7 85 3c 00", "VALIDATE was sent twice"},
      {"00 ce f7 85 3c 13", "unknown opcode 19"},
      {"00 ce f7 85 3c ff", "unknown opcode 255"},
      {"00 ce f7 85 3d", ""},  // no error: this is a legacy SET whose key length is incomplete
      {"00 ce f7 85 3d 00 00 00 00", "a key has 1032189902 bytes; at most 8192"},
      {"47 45 54 20", "unknown opcode 71"},
      {"0c", "unknown opcode 12"},
      {"02 01 20 00 00 00 00 00 00", "a key has 8193 bytes; at most 8192"},
      {"02 00 00 00 00 00 00 00 40", "a key has 4611686018427387904 bytes"},
      {"02 ff ff ff ff ff ff ff ff", "a key has 18446744073709551615 bytes"},
      {"00 00 .. 01 00 80 00 00 00 00 00", "a value has 8388609 bytes; at most 8388608"},
      {"04 00 00 00 00 00 01 00 00", "the request has 1099511627776 keys; at most 131072"},
      {"0a ff ff ff ff ff ff ff ff", "18446744073709551615 keys"},
      {"00 ce f7 85 3c 07 07 13", "at byte 7"},
  };
  for (const auto& bad : kBad) {
    const std::string bytes = Hex(bad.hex);
    for (const auto& pieces : {std::vector<std::string>{bytes}, InBytes(bytes)}) {
      const Parsed parsed = Parse(pieces);
      if (*bad.error == 0) {
        EXPECT_TRUE(parsed.status.ok()) << parsed.status;
        continue;
      }
      EXPECT_EQ(parsed.status.code(), absl::StatusCode::kInvalidArgument) << bad.hex;
      EXPECT_NE(parsed.status.message().find(bad.error), absl::string_view::npos) << parsed.status;
    }
  }
}

TEST(ParserTest, RejectsWatchKeyInDialectA) {
  const Parsed parsed = Parse({Hex("07 02 .. 2f 6b")}, {}, LegacyDialect::kA);
  EXPECT_EQ(parsed.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(parsed.status.message().find("WATCH_KEY"), absl::string_view::npos);
}

TEST(ParserTest, AnErrorIsFinalAndFollowsTheValidRequests) {
  Parser parser;
  int count = 0;
  const auto take = [&](const Request&) { return ++count > 0; };
  EXPECT_FALSE(parser.Feed(Hex("06 06 ff 06"), take).ok());
  EXPECT_EQ(count, 2);
  EXPECT_FALSE(parser.Feed(Hex("06"), take).ok());
  EXPECT_EQ(count, 2);
  EXPECT_EQ(parser.buffered_bytes(), 0);
}

TEST(ParserTest, RequestLimitCountsAllFields) {
  const ParserLimits limits{.max_request_bytes = 100};
  std::string bytes;
  const std::string value(60, 'x');
  const KeyValue pairs[] = {{"a", value}, {"b", value}};
  AppendRequest(MultiSet{pairs}, Dialect::kB, &bytes);
  EXPECT_NE(Parse({bytes}, limits).status.message().find("the request has more than 100 bytes"),
            absl::string_view::npos);
  bytes.clear();
  AppendRequest(MultiSet{{pairs, 1}}, Dialect::kB, &bytes);
  EXPECT_TRUE(Parse({bytes}, limits).status.ok());
}

TEST(ParserTest, AcceptsTheLargestKeyAndValue) {
  const std::string key(8 << 10, 'k'), value(8 << 20, 'v');
  std::string bytes;
  AppendValidate(&bytes);
  AppendRequest(Set{key, value}, Dialect::kVersioned, &bytes);
  Parser parser;
  int count = 0;
  for (size_t at = 0; at < bytes.size(); at += 65536) {
    ASSERT_TRUE(parser
                    .Feed(absl::string_view(bytes).substr(at, 65536),
                          [&](const Request& r) {
                            const auto& set = std::get<Set>(r);
                            EXPECT_TRUE(set.key == key && set.value == value);
                            return ++count > 0;
                          })
                    .ok());
  }
  EXPECT_EQ(count, 1);
  EXPECT_EQ(parser.buffered_bytes(), 0);
}

// ddprun's clients must send the same bytes as PyTorch's clients.
TEST(WireTest, RequestsEncodeToTheCapturedBytes) {
  const struct {
    const char* greeting;
    absl::Span<const Sample> samples;
    Dialect dialect;
  } kTables[] = {{kGreeting, kVersioned, Dialect::kVersioned}, {"", kA, Dialect::kA}, {"", kB, Dialect::kB}};
  for (const auto& table : kTables) {
    for (const Sample& sample : table.samples) {
      Parser parser;
      std::string written;
      ASSERT_TRUE(parser
                      .Feed(Hex(table.greeting) + Hex(sample.hex),
                            [&](const Request& r) {
                              AppendRequest(r, table.dialect, &written);
                              return true;
                            })
                      .ok());
      EXPECT_EQ(Quote(written), Quote(Hex(sample.hex))) << sample.request;
    }
  }
}

TEST(WireTest, EncodesGreetingAndReplyFields) {
  std::string out;
  AppendValidate(&out);
  EXPECT_EQ(out, Hex(kGreeting));
  out.clear();
  AppendU8(1, &out);
  AppendU32(0x2137, &out);
  AppendI64(-2, &out);
  AppendBytes("v1", &out);
  EXPECT_EQ(Quote(out), Quote(Hex("01 37 21 00 00 fe ff ff ff ff ff ff ff 02 .. 76 31")));
  EXPECT_EQ(ReadU32(out.data() + 1), 0x2137);
  EXPECT_EQ(ReadI64(out.data() + 5), -2);
}

TEST(WireTest, MapsTheOpcodesOfEachDialect) {
  const auto names = [](Dialect dialect) {
    std::vector<std::string> names;
    for (int code = 0; code < 256; ++code) {
      if (const auto op = OpOfCode(dialect, static_cast<uint8_t>(code))) {
        names.push_back(absl::StrCat(code, Info(*op).name));
      }
    }
    return absl::StrJoin(names, " ");
  };
  EXPECT_EQ(names(Dialect::kVersioned),
            "0VALIDATE 1SET 2COMPARE_SET 3GET 4ADD 5CHECK 6WAIT 7GETNUMKEYS 8DELETE_KEY 9APPEND 10MULTI_GET "
            "11MULTI_SET 12CANCEL_WAIT 13PING 14QUEUE_PUSH 15QUEUE_POP 16QUEUE_LEN 17LIST_KEYS 18BARRIER");
  EXPECT_EQ(names(Dialect::kA),
            "0SET 1COMPARE_SET 2GET 3ADD 4CHECK 5WAIT 6GETNUMKEYS 7WATCH_KEY 8DELETE_KEY");
  EXPECT_EQ(names(Dialect::kB),
            "0SET 1COMPARE_SET 2GET 3ADD 4CHECK 5WAIT 6GETNUMKEYS 7DELETE_KEY 8APPEND 9MULTI_GET 10MULTI_SET "
            "11CANCEL_WAIT");
  EXPECT_EQ(names(Dialect::kLegacy),
            "0SET 1COMPARE_SET 2GET 3ADD 4CHECK 5WAIT 6GETNUMKEYS 7DELETE_KEY 9MULTI_GET 10MULTI_SET "
            "11CANCEL_WAIT");
  EXPECT_EQ(names(Dialect::kUnknown), "");
}

}  // namespace
}  // namespace ddprun::c10d
