// Parses the requests of one c10d connection from bytes that arrive in arbitrary pieces. Pure: no socket, no
// clock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/c10d_wire.h"

namespace ddprun::c10d {

// Limits of requests. Memory grows with the bytes received, never with a declared length.
struct ParserLimits {
  uint64_t max_key_bytes = 8 << 10;
  uint64_t max_value_bytes = 8 << 20;
  uint64_t max_list_items = 131'072;      // keys or pairs of one request
  uint64_t max_request_bytes = 64 << 20;  // of one whole request
};

// Opcode 8 is DELETE_KEY in dialect A and APPEND in B. kAuto distinguishes them by what follows the key.
enum class LegacyDialect : uint8_t { kAuto, kA, kB };

// Invariant: the sequence of requests depends on the bytes and on the positions in the stream at which
// EndGrace was called, not on how the bytes were split into pieces.
//   Threads: one caller at a time.
class Parser {
 public:
  // Receives one request, whose views are valid until the callback returns. Returns false to pause; Feed("")
  // resumes. Must not call the parser.
  using OnRequest = absl::FunctionRef<bool(const Request&)>;

  explicit Parser(const ParserLimits& limits = {}, LegacyDialect legacy = LegacyDialect::kAuto);

  // Consumes `data` and passes every request that is now complete to `on_request`, in order.
  //   Errors: kInvalidArgument with the cause and its position: the caller closes the connection; later calls
  //           return the same error. Requests before the bad one have already been passed on.
  absl::Status Feed(absl::string_view data, OnRequest on_request);

  // True while the last request may be dialect A's DELETE_KEY or the first half of B's APPEND. The caller
  // waits for a short time (A's client sends nothing more until it has the reply, B's client sends the rest
  // immediately), then calls EndGrace.
  bool NeedsGrace() const { return ambiguous_; }
  // Reports that nothing more arrived: the request is DELETE_KEY, and the connection uses dialect A. No
  // effect unless NeedsGrace().
  absl::Status EndGrace(OnRequest on_request);

  Dialect dialect() const { return dialect_; }
  // Buffered bytes of requests that have not been passed on yet.
  size_t buffered_bytes() const { return buffer_.size(); }
  // Memory held in addition to the object, in bytes; at most kMaxIdleBytes while no request is incomplete.
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

  // The first `scanned_` bytes of the request being read are checked; the next members describe its other
  // fields.
  size_t scanned_ = 0;
  Op op_ = Op::kValidate;
  const Field* next_field_ = nullptr;
  uint64_t strings_left_ = 0;  // of the list being read; a pair counts as two
  bool pairs_ = false;
  bool ambiguous_ = false;

  uint64_t given_bytes_ = 0;  // size of all earlier requests, for error messages
  std::string buffer_;        // starts with the request being read
  std::vector<absl::string_view> keys_;
  std::vector<KeyValue> key_values_;
};

}  // namespace ddprun::c10d
