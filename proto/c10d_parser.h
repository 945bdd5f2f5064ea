// Parses the requests of one c10d connection from bytes that arrive in arbitrary pieces. Uses no socket and
// no clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/c10d_wire.h"

namespace ddprun::c10d {

// Limits for requests. The parser's memory grows with the bytes received, never with a declared length.
struct ParserLimits {
  uint64_t max_key_bytes = 8 << 10;
  uint64_t max_value_bytes = 8 << 20;
  uint64_t max_list_items = 131'072;      // keys or pairs in one request
  uint64_t max_request_bytes = 64 << 20;  // size of the encoded request
};

// The dialect of legacy connections. With kAuto, the parser determines the dialect of each connection from
// the opcodes. Opcode 8 means DELETE_KEY in dialect A and APPEND in dialect B. For opcode 8, the bytes after
// the key therefore determine the dialect.
enum class LegacyDialect : uint8_t { kAuto, kA, kB };

// Invariant: the sequence of requests depends on the bytes and on the positions in the stream at which
// EndGrace is called. It does not depend on how the bytes are split into pieces.
//   Threads: one caller at a time.
class Parser {
 public:
  // Receives one request, whose views are valid until the callback returns. If the callback returns false,
  // the parser pauses until Feed("") is called. The callback must not call the parser.
  using OnRequest = absl::FunctionRef<bool(const Request&)>;

  explicit Parser(const ParserLimits& limits = {}, LegacyDialect legacy = LegacyDialect::kAuto);

  // Consumes `data` and passes every request that is now complete to `on_request`, in order.
  //   Errors: kInvalidArgument: a request is malformed or exceeds a limit. The message names the cause and
  //           its position. All earlier requests were passed to `on_request`. Later calls return the same
  //           error, so the caller should close the connection.
  absl::Status Feed(absl::string_view data, OnRequest on_request);

  // True while the last request may be either A's DELETE_KEY or the first half of B's APPEND. A client of A
  // sends no more bytes until it has received the reply, whereas a client of B sends the rest immediately.
  // The caller should therefore wait for a short time, the grace period, and then call EndGrace.
  bool NeedsGrace() const { return ambiguous_; }
  // Reports that no more bytes arrived in the grace period. The request is then DELETE_KEY, and the
  // connection uses dialect A. Has no effect unless NeedsGrace() is true.
  absl::Status EndGrace(OnRequest on_request);

  Dialect dialect() const { return dialect_; }
  // Returns the number of buffered bytes, which belong to requests that have not yet been passed on.
  size_t buffered_bytes() const { return buffer_.size(); }
  // Returns the size of the parser's heap memory in bytes; at most kMaxIdleBytes while no bytes are buffered.
  size_t held_bytes() const {
    return buffer_.capacity() + keys_.capacity() * sizeof(keys_[0]) +
           key_values_.capacity() * sizeof(key_values_[0]);
  }
  static constexpr size_t kMaxIdleBytes = 3 << 10;

 private:
  enum class Scanned { kComplete, kIncomplete, kBad };

  size_t Consume(absl::string_view input, OnRequest on_request);
  bool Detect(absl::string_view rest, size_t* greeting_bytes);
  Scanned Scan(absl::string_view rest);
  Scanned ScanOpcode(uint8_t code);
  Scanned ScanField(absl::string_view rest, Field field);
  Scanned ScanString(absl::string_view rest, bool is_key);
  Request Decode(absl::string_view request);
  Scanned Bad(std::string what);
  void Keep(absl::string_view rest);

  const ParserLimits limits_;
  const LegacyDialect legacy_;
  Dialect dialect_ = Dialect::kUnknown;
  absl::Status error_;

  // The current request, of which the first `scanned_` bytes have been checked.
  size_t scanned_ = 0;
  Op op_ = Op::kValidate;
  const Field* next_field_ = nullptr;
  uint64_t strings_left_ = 0;  // strings of the current list that Scan has not checked; a pair counts as two
  bool pairs_ = false;         // whether the current list consists of pairs
  bool ambiguous_ = false;     // see NeedsGrace

  uint64_t given_bytes_ = 0;  // size of all earlier requests, for error messages
  std::string buffer_;        // begins with the current request, which is incomplete or not passed on yet
  std::vector<absl::string_view> keys_;
  std::vector<KeyValue> key_values_;
};

}  // namespace ddprun::c10d
