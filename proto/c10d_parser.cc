#include "proto/c10d_parser.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::c10d {
namespace {

constexpr size_t kGreetingBytes = 5;  // size of VALIDATE: the opcode and the magic number
// Maximum capacity that each of the three buffers keeps between requests.
constexpr size_t kKeptBytes = Parser::kMaxIdleBytes / 3;

absl::string_view DialectName(Dialect dialect) {
  switch (dialect) {
    case Dialect::kUnknown:
      return "unknown";
    case Dialect::kVersioned:
      return "2.2+";
    case Dialect::kLegacy:
      return "1.9-2.1";
    case Dialect::kA:
      return "1.9-2.0";
    case Dialect::kB:
      return "2.1";
  }
  return "?";
}

// Decodes the fields of a request that Scan has checked.
class Reader {
 public:
  explicit Reader(absl::string_view request) : p_(request.data() + 1) {}

  uint32_t U32() { return ReadU32(std::exchange(p_, p_ + 4)); }
  int64_t I64() { return ReadI64(std::exchange(p_, p_ + 8)); }
  absl::string_view String() {
    const auto size = static_cast<size_t>(I64());
    return {std::exchange(p_, p_ + size), size};
  }
  absl::Span<const absl::string_view> Keys(std::vector<absl::string_view>& keys) {
    const int64_t count = I64();
    keys.clear();
    for (int64_t i = 0; i < count; ++i) keys.push_back(String());
    return keys;
  }
  absl::Span<const KeyValue> Pairs(std::vector<KeyValue>& pairs) {
    const int64_t count = I64();
    pairs.clear();
    for (int64_t i = 0; i < count; ++i) {
      pairs.push_back({String(), String()});
    }
    return pairs;
  }

 private:
  const char* p_;
};

}  // namespace

Parser::Parser(const ParserLimits& limits, LegacyDialect legacy) : limits_(limits), legacy_(legacy) {}

absl::Status Parser::Feed(absl::string_view data, OnRequest on_request) {
  if (!error_.ok()) return error_;
  if (buffer_.empty()) {  // the common case: complete requests are parsed in place
    const size_t used = Consume(data, on_request);
    Keep(data.substr(used));
  } else {
    buffer_.append(data.data(), data.size());
    const size_t used = Consume(buffer_, on_request);
    if (used > 0 || !error_.ok()) Keep(absl::string_view(buffer_).substr(used));
  }
  return error_;
}

absl::Status Parser::EndGrace(OnRequest on_request) {
  if (!std::exchange(ambiguous_, false)) return error_;
  dialect_ = Dialect::kA;
  op_ = Op::kDeleteKey;
  on_request(Decode(buffer_));
  given_bytes_ += scanned_;
  scanned_ = 0;
  Keep({});
  return error_;
}

// Passes the complete requests in `input` to `on_request`. Returns the number of bytes consumed.
size_t Parser::Consume(absl::string_view input, OnRequest on_request) {
  size_t used = 0;
  while (used < input.size()) {
    const absl::string_view rest = input.substr(used);
    if (dialect_ == Dialect::kUnknown) {
      size_t greeting_bytes = 0;
      if (!Detect(rest, &greeting_bytes)) break;
      used += greeting_bytes;
      given_bytes_ += greeting_bytes;
      continue;
    }
    if (Scan(rest) != Scanned::kComplete) break;
    const size_t size = std::exchange(scanned_, 0);
    const bool more = on_request(Decode(rest.substr(0, size)));
    used += size;
    given_bytes_ += size;
    if (!more) break;
  }
  return used;
}

// Determines the dialect. Returns false if more bytes are needed. A versioned connection starts with 00 and
// the magic number. A legacy SET also starts with 00, but the length of its key follows, and the magic
// number would be part of a length of at least 1 GB. Waiting for 5 bytes cannot block a legacy client,
// because a SET has at least 17 bytes.
bool Parser::Detect(absl::string_view rest, size_t* greeting_bytes) {
  if (rest[0] == 0) {
    if (rest.size() < kGreetingBytes) return false;
    if (ReadU32(rest.data() + 1) == kValidateMagic) {
      dialect_ = Dialect::kVersioned;
      *greeting_bytes = kGreetingBytes;
      return true;
    }
  }
  dialect_ = legacy_ == LegacyDialect::kA   ? Dialect::kA
             : legacy_ == LegacyDialect::kB ? Dialect::kB
                                            : Dialect::kLegacy;
  return true;
}

Parser::Scanned Parser::Scan(absl::string_view rest) {
  if (scanned_ == 0) {
    if (ScanOpcode(static_cast<uint8_t>(rest[0])) == Scanned::kBad) return Scanned::kBad;
  }
  if (ambiguous_) {
    // The key is complete. If more bytes follow, they are a value, and the request is B's APPEND.
    if (rest.size() == scanned_) return Scanned::kIncomplete;
    ambiguous_ = false;
    dialect_ = Dialect::kB;
  }
  while (true) {
    if (strings_left_ > 0) {
      const bool is_key = !pairs_ || strings_left_ % 2 == 0;
      if (const Scanned s = ScanString(rest, is_key); s != Scanned::kComplete) return s;
      --strings_left_;
      continue;
    }
    if (*next_field_ == Field::kEnd) return Scanned::kComplete;
    if (const Scanned s = ScanField(rest, *next_field_); s != Scanned::kComplete) return s;
    ++next_field_;
    if (dialect_ == Dialect::kLegacy && op_ == Op::kAppend && *next_field_ == Field::kValue) {
      if (rest.size() == scanned_) {
        ambiguous_ = true;
        return Scanned::kIncomplete;
      }
      dialect_ = Dialect::kB;
    }
  }
}

Parser::Scanned Parser::ScanOpcode(uint8_t code) {
  std::optional<Op> op = OpOfCode(dialect_, code);
  if (dialect_ == Dialect::kLegacy) {
    if (code == kAmbiguousLegacyCode) {
      op = Op::kAppend;  // or DELETE_KEY; Scan decides after the key
    } else if (code > 6 && op) {
      dialect_ = Dialect::kB;
    }
  }
  if (!op) return Bad(absl::StrCat("unknown opcode ", code));
  if (*op == Op::kValidate) return Bad("VALIDATE was sent twice");
  if (*op == Op::kWatchKey) return Bad("WATCH_KEY is not supported");
  op_ = *op;
  next_field_ = Info(op_).fields;
  scanned_ = 1;
  return Scanned::kComplete;
}

Parser::Scanned Parser::ScanField(absl::string_view rest, Field field) {
  const size_t here = rest.size() - scanned_;
  switch (field) {
    case Field::kEnd:
      break;
    case Field::kKey:
    case Field::kValue:
      return ScanString(rest, field == Field::kKey);
    case Field::kU32:
      if (here < 4) return Scanned::kIncomplete;
      scanned_ += 4;
      break;
    case Field::kI64:
      if (here < 8) return Scanned::kIncomplete;
      scanned_ += 8;
      break;
    case Field::kKeys:
    case Field::kPairs: {
      if (here < 8) return Scanned::kIncomplete;
      const auto count = static_cast<uint64_t>(ReadI64(rest.data() + scanned_));
      if (count > limits_.max_list_items) {
        return Bad(absl::StrCat("the request has ", count, " keys; at most ", limits_.max_list_items,
                                " are allowed"));
      }
      scanned_ += 8;
      pairs_ = field == Field::kPairs;
      strings_left_ = pairs_ ? 2 * count : count;
      break;
    }
  }
  return Scanned::kComplete;
}

Parser::Scanned Parser::ScanString(absl::string_view rest, bool is_key) {
  const size_t here = rest.size() - scanned_;
  if (here < 8) return Scanned::kIncomplete;
  const auto size = static_cast<uint64_t>(ReadI64(rest.data() + scanned_));
  const uint64_t max = is_key ? limits_.max_key_bytes : limits_.max_value_bytes;
  if (size > max) {
    return Bad(
        absl::StrCat("a ", is_key ? "key" : "value", " has ", size, " bytes; at most ", max, " are allowed"));
  }
  if (scanned_ + 8 + size > limits_.max_request_bytes) {
    return Bad(absl::StrCat("the request has more than ", limits_.max_request_bytes, " bytes"));
  }
  if (here - 8 < size) return Scanned::kIncomplete;
  scanned_ += 8 + size;
  return Scanned::kComplete;
}

Request Parser::Decode(absl::string_view request) {
  Reader in(request);
  switch (op_) {  // braced initializers are evaluated from left to right
    case Op::kPing:
      return Ping{in.U32()};
    case Op::kSet:
      return Set{in.String(), in.String()};
    case Op::kCompareSet:
      return CompareSet{in.String(), in.String(), in.String()};
    case Op::kGet:
      return Get{in.String()};
    case Op::kAdd:
      return Add{in.String(), in.I64()};
    case Op::kCheck:
      return Check{in.Keys(keys_)};
    case Op::kWait:
      return Wait{in.Keys(keys_)};
    case Op::kCancelWait:
      return CancelWait{};
    case Op::kNumKeys:
      return NumKeys{};
    case Op::kDeleteKey:
      return DeleteKey{in.String()};
    case Op::kAppend:
      return Append{in.String(), in.String()};
    case Op::kMultiGet:
      return MultiGet{in.Keys(keys_)};
    case Op::kMultiSet:
      return MultiSet{in.Pairs(key_values_)};
    case Op::kQueuePush:
      return QueuePush{in.String(), in.String()};
    case Op::kQueuePop:
      return QueuePop{in.String()};
    case Op::kQueueLen:
      return QueueLen{in.String()};
    case Op::kListKeys:
      return ListKeys{};
    case Op::kBarrier:
      return Barrier{in.String(), in.I64()};
    case Op::kValidate:
    case Op::kWatchKey:
      break;  // rejected by ScanOpcode
  }
  std::abort();
}

Parser::Scanned Parser::Bad(std::string what) {
  error_ = absl::InvalidArgumentError(absl::StrCat("bad c10d request at byte ", given_bytes_ + scanned_,
                                                   " (dialect ", DialectName(dialect_), "): ", what));
  return Scanned::kBad;
}

// Sets buffer_ to `rest`, which may point into buffer_. After an error, clears buffer_ instead.
void Parser::Keep(absl::string_view rest) {
  if (!error_.ok()) rest = {};
  if (rest.empty()) {
    if (buffer_.capacity() > kKeptBytes) {
      std::string().swap(buffer_);
    } else {
      buffer_.clear();
    }
    if (keys_.capacity() * sizeof(absl::string_view) > kKeptBytes) keys_ = {};
    if (key_values_.capacity() * sizeof(KeyValue) > kKeptBytes) key_values_ = {};
  } else if (buffer_.empty()) {
    buffer_.assign(rest.data(), rest.size());
  } else {
    buffer_.erase(0, buffer_.size() - rest.size());
  }
}

}  // namespace ddprun::c10d
