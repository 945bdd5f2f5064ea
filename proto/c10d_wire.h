// The c10d TCP protocol of PyTorch's TCPStore: requests as values, a table of opcodes, and the encoding of
// requests and replies. Pure; c10d_parser.h reads what AppendRequest writes.
// See docs/protocol.md, "c10d TCP".
//
// All numbers are little-endian. A request is one opcode byte and its fields; a string is a u64 length and
// its bytes; a list is a u64 count and its items. Replies have no opcode and are sent in order.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun::c10d {

// PyTorch has changed the numbering of opcodes twice; each connection uses one of these numberings.
enum class Dialect : uint8_t {
  kUnknown,    // no bytes decoded yet
  kVersioned,  // PyTorch 2.2 and later; starts with VALIDATE
  kLegacy,     // 1.9 to 2.1, not yet known whether kA or kB: opcode 8 decides
  kA,          // 1.9 to 2.0
  kB,          // 2.1
};

enum class Op : uint8_t {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kNumKeys,
  kWatchKey,
  kDeleteKey,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kQueuePush,
  kQueuePop,
  kQueueLen,
  kListKeys,
  kBarrier,
};

// The fields of a request after its opcode byte.
enum class Field : uint8_t {
  kEnd,
  kU32,
  kI64,
  kKey,
  kValue,
  kKeys,   // list of keys
  kPairs,  // list of (key, value)
};

struct OpInfo {
  Op op;
  absl::string_view name;
  Field fields[4];                        // up to the first kEnd
  int8_t code_versioned, code_a, code_b;  // -1: not in this dialect
};

const OpInfo& Info(Op op);

// Returns the request that `code` stands for; nullopt: unknown. For kLegacy: the opcodes that A and B share;
// 7 and 9 to 11 as in B, because A's Python clients never send them; none for 8.
std::optional<Op> OpOfCode(Dialect dialect, uint8_t code);

inline constexpr uint32_t kValidateMagic = 0x3C85F7CE;
// DELETE_KEY in dialect A, APPEND in dialect B.
inline constexpr uint8_t kAmbiguousLegacyCode = 8;

// Views in a request are borrowed; the creator of the request keeps the bytes alive.
struct KeyValue {
  absl::string_view key, value;
  bool operator==(const KeyValue&) const = default;
};

struct Ping {
  uint32_t nonce;
};
struct Set {
  absl::string_view key, value;
};
struct CompareSet {
  absl::string_view key, expected, desired;
};
struct Get {
  absl::string_view key;
};
struct Add {
  absl::string_view key;
  int64_t delta;
};
struct Check {
  absl::Span<const absl::string_view> keys;
};
struct Wait {
  absl::Span<const absl::string_view> keys;
};
struct CancelWait {};
struct NumKeys {};
struct DeleteKey {
  absl::string_view key;
};
struct Append {
  absl::string_view key, value;
};
struct MultiGet {
  absl::Span<const absl::string_view> keys;
};
struct MultiSet {
  absl::Span<const KeyValue> pairs;
};
struct QueuePush {
  absl::string_view key, value;
};
struct QueuePop {
  absl::string_view key;
};
struct QueueLen {
  absl::string_view key;
};
struct ListKeys {};
struct Barrier {
  absl::string_view key;
  int64_t world_size;
};

using Request = std::variant<Ping, Set, CompareSet, Get, Add, Check, Wait, CancelWait, NumKeys, DeleteKey,
                             Append, MultiGet, MultiSet, QueuePush, QueuePop, QueueLen, ListKeys, Barrier>;

Op OpOf(const Request& request);

// The greeting that opens a versioned connection; it has no reply.
void AppendValidate(std::string* out);
//   REQUIRES: `dialect` is kVersioned, kA or kB and supports the request.
void AppendRequest(const Request& request, Dialect dialect, std::string* out);

// One-byte replies.
enum class CheckReply : uint8_t { kReady = 0, kNotReady = 1 };
enum class WaitReply : uint8_t { kStopWaiting = 0, kWaitCanceled = 1 };

// Append parts of replies to `out`.
void AppendU8(uint8_t n, std::string* out);
void AppendU32(uint32_t n, std::string* out);
void AppendI64(int64_t n, std::string* out);
void AppendBytes(absl::string_view bytes, std::string* out);  // length and bytes

// Read what AppendU32 and AppendI64 wrote.
//   REQUIRES: 4 or 8 bytes at `p`.
uint32_t ReadU32(const char* p);
int64_t ReadI64(const char* p);

}  // namespace ddprun::c10d
