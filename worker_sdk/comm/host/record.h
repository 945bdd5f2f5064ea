// Records that announce the end of communication to other ranks, and what leads to it. They are sent on separate connections.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "base/time.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/call.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {

// Stored in the segment and sent between processes in its in-memory layout (all machines are little-endian).
struct EndRecord {
  enum Kind : uint32_t {
    kDead = 1,    // the communicator is dead on all ranks; the first kDead record has the reason
    kLeft = 2,    // `rank` left as planned, after taking part in chunks 0 .. num_chunks - 1
    kAsk = 3,     // a deadline has passed on some rank: every rank that runs answers
    kAnswer = 4,  // `rank` runs; num_chunks: 1 if it waits for other ranks
    kNote =
        5,  // `rank` waits for an operation whose call the ranks must compare: a CallNote. Best effort, ends nothing
  };
  static constexpr uint32_t kMagic = 0x45505244;

  uint32_t magic = kMagic;
  uint32_t kind = kDead;
  int64_t round = 0;
  uint64_t num_chunks = 0;  // kLeft, kAnswer
  int32_t rank = 0;     // kLeft, kAnswer, kNote; -1: the rank at the other end of the connection (kAnswer)
  int32_t code = 0;     // kDead: a StatusCode
  char text[224] = {};  // kDead: the reason, NUL-terminated; kNote: a CallNote

  Status status() const { return Status(static_cast<StatusCode>(code), text); }
};
static_assert(sizeof(EndRecord) == 256);

// The last calls of a rank, up to that of the operation for which it waits (call_history.h).
struct CallNote {
  static constexpr uint32_t kMaxCalls = 6;

  uint64_t hash_before = 0;  // of all calls of the rank before calls[0]
  uint32_t num_calls = 0;    // at least 1
  uint32_t attempt = 0;  // number of earlier notes about the last call: a note that is repeated is no copy
  internal::Call calls[kMaxCalls] = {};

  // REQUIRES: num_calls > 0.
  [[nodiscard]] const internal::Call& last() const { return calls[num_calls - 1]; }
  bool operator==(const CallNote&) const = default;
};
static_assert(sizeof(CallNote) == 208 && sizeof(CallNote) < sizeof(EndRecord::text));

inline EndRecord DeadRecord(int64_t round, const Status& why) {
  EndRecord record{.kind = EndRecord::kDead, .round = round, .code = static_cast<int32_t>(why.code())};
  const size_t n = std::min(why.message().size(), sizeof(record.text) - 1);
  std::memcpy(record.text, why.message().data(), n);
  return record;
}

inline EndRecord LeftRecord(int64_t round, int rank, uint64_t num_chunks) {
  return {.kind = EndRecord::kLeft, .round = round, .num_chunks = num_chunks, .rank = rank};
}

inline EndRecord AskRecord(int64_t round) { return {.kind = EndRecord::kAsk, .round = round}; }
inline EndRecord AnswerRecord(int64_t round, bool waits) {
  return {.kind = EndRecord::kAnswer, .round = round, .num_chunks = waits, .rank = -1};
}

inline EndRecord NoteRecord(int64_t round, int rank, const CallNote& note) {
  EndRecord record{.kind = EndRecord::kNote, .round = round, .rank = rank};
  std::memcpy(record.text, &note, sizeof(note));
  return record;
}
// The note of a kNote record; nullopt if it is malformed.
inline std::optional<CallNote> NoteIn(const EndRecord& record) {
  CallNote note;
  std::memcpy(&note, record.text, sizeof(note));
  if (note.num_calls == 0 || note.num_calls > CallNote::kMaxCalls) return std::nullopt;
  return note;
}

inline Status GoneError(int rank, int64_t round) {
  return UnavailableError(StrCat("rank ", rank, " of round ", round, " is gone"));
}

// `between`: the result of EndsInWords for the connection.
inline Status CutOffError(int rank, int64_t round, Duration silence, std::string_view between) {
  return UnavailableError(StrCat("no answer from rank ", rank, " of round ", round, " for ",
                                 ToMillis(silence) / 1000, " s: the network between ", between,
                                 " is cut or drops packets (cable, firewall, MTU)"));
}

}  // namespace ddprun
