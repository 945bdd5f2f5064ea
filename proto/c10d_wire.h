// The c10d TCP protocol of PyTorch's TCPStore: requests as values, a table of opcodes, and the encoding of
// requests and replies. c10d_parser.h decodes requests. See docs/protocol.md, "c10d TCP".
//
// All numbers are little-endian. A request is one opcode byte followed by its fields. A string is a u64
// length followed by its bytes. A list is a u64 count followed by its items. Replies have no opcode and are
// sent in the order of the requests.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun::c10d {

// A numbering of the opcodes. PyTorch has changed the numbering twice. Each connection uses one dialect.
enum class Dialect : uint8_t {
  kUnknown,    // the dialect has not been determined yet
  kVersioned,  // PyTorch 2.2 and later; the connection starts with VALIDATE
  kLegacy,     // PyTorch 1.9 to 2.1; the first opcode above 6 determines whether it is kA or kB
  kA,          // PyTorch 1.9 to 2.0
  kB,          // PyTorch 2.1
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

// The types of the fields that follow the opcode byte.
enum class Field : uint8_t {
  kEnd,  // there are no more fields
  kU32,
  kI64,
  kKey,
  kValue,
  kKeys,   // a list of keys
  kPairs,  // a list of (key, value) pairs
};

struct OpInfo {
  Op op;
  absl::string_view name;
  Field fields[4];                        // the entries before the first kEnd
  int8_t code_versioned, code_a, code_b;  // the opcode in each dialect; -1 if the dialect lacks the request
};

const OpInfo& Info(Op op);

// Returns the operation with opcode `code`, or nullopt if the dialect has none. In kLegacy, opcodes 0 to 6
// are those that A and B share. Opcodes 7 and 9 to 11 are those of B, because Python clients of A never send
// them. Opcode 8 has no operation, because it has different meanings in A and B.
std::optional<Op> OpOfCode(Dialect dialect, uint8_t code);

inline constexpr uint32_t kValidateMagic = 0x3C85F7CE;
// This opcode means DELETE_KEY in dialect A and APPEND in dialect B.
inline constexpr uint8_t kAmbiguousLegacyCode = 8;

// Requests do not own their bytes and lists, which must outlive the request.
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

// Appends VALIDATE, which opens a versioned connection and has no reply.
void AppendValidate(std::string* out);
// Appends the encoded request.
//   REQUIRES: `dialect` is kVersioned, kA or kB and has an opcode for the request.
void AppendRequest(const Request& request, Dialect dialect, std::string* out);

// One-byte replies.
enum class CheckReply : uint8_t { kReady = 0, kNotReady = 1 };
enum class WaitReply : uint8_t { kStopWaiting = 0, kWaitCanceled = 1 };

// These functions append parts of requests and replies to `out`.
void AppendU8(uint8_t n, std::string* out);
void AppendU32(uint32_t n, std::string* out);
void AppendI64(int64_t n, std::string* out);
void AppendBytes(absl::string_view bytes, std::string* out);  // the length, then the bytes

// These functions decode the output of AppendU32 and AppendI64.
//   REQUIRES: `p` points to at least 4 or 8 bytes, respectively.
uint32_t ReadU32(const char* p);
int64_t ReadI64(const char* p);

}  // namespace ddprun::c10d
