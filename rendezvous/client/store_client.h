// What a client of a store can do, over whichever protocol: the contract that all of them keep.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/time.h"

namespace ddprun {

// Blocking. A call that may wait takes at most its timeout, any other that of the connecting; giving up a
// wait may take a store that hangs 5 s more.
//   Keys:    "/" is put in front of each, as torch's TCPStore does, so that all clients of a store see the
//            same keys. A key with it has at most 8192 bytes, a value 8 MiB, a list 131,072 items, a request
//            64 MiB. Names of queues are as keys, and may be the same.
//   Order:   what one client asks is carried out in the order of its calls. Those that return nothing but a
//            Status may return before; any later call of the same client that returns more comes after.
//   Errors:  kInvalidArgument: beyond those limits, nothing was sent;
//            kDeadlineExceeded naming the keys waited for;
//            kUnavailable: the store is gone or did not answer, naming the keys waited for;
//            kAborted: the store has been replaced by that of a later round.
//            After the last two the client is dead (make a new one), else it stays usable. c10d TCP has no
//            words for errors: there, what the store refuses (a number expected, a store that is full) is
//            kUnavailable, too.
//   Threads: one caller at a time.
class StoreClient {
 public:
  struct Pair {
    absl::string_view key, value;
  };

  virtual ~StoreClient() = default;

  virtual absl::Status Set(absl::string_view key, absl::string_view value) = 0;
  // All pairs or none; a key that is there twice has its last value.
  virtual absl::Status MultiSet(absl::Span<const Pair> pairs) = 0;
  // Concatenates, or creates.
  virtual absl::Status Append(absl::string_view key, absl::string_view value) = 0;
  // Stores `desired` if the value at `key` is `expected` (absent = empty). Returns the value that is there
  // then, or `expected` if `key` is absent and `expected` is not empty.
  virtual absl::StatusOr<std::string> CompareSet(absl::string_view key, absl::string_view expected,
                                                 absl::string_view desired) = 0;
  // Adds to the decimal number at `key`, read as strtoll reads it (absent = 0), and returns the sum, which
  // wraps around.
  virtual absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta) = 0;
  // Waits until `key` is there, then returns its value. One that is there is returned however short `timeout`
  // is.
  virtual absl::StatusOr<std::string> Get(absl::string_view key, Duration timeout) = 0;
  // As Get, of each key.
  virtual absl::StatusOr<std::vector<std::string>> MultiGet(const std::vector<std::string>& keys,
                                                            Duration timeout) = 0;
  // Whether each key is there, or a queue of that name with an item; true for none.
  virtual absl::StatusOr<bool> Check(const std::vector<std::string>& keys) = 0;
  // Waits until each key that is missing now has come once.
  virtual absl::Status Wait(const std::vector<std::string>& keys, Duration timeout) = 0;
  // Also counts keys that torch's clients make for themselves ("init/").
  virtual absl::StatusOr<int64_t> NumKeys() = 0;
  // Those with a "/" in front, without it, in any order.
  virtual absl::StatusOr<std::vector<std::string>> ListKeys() = 0;
  // True if `key` was there. Touches no queue, and nobody who waits.
  virtual absl::StatusOr<bool> DeleteKey(absl::string_view key) = 0;

  virtual absl::Status QueuePush(absl::string_view name, absl::string_view item) = 0;
  // Waits for an item and takes the oldest.
  //   Errors: kNotFound: what came was taken by somebody else, or is a key of that name.
  virtual absl::StatusOr<std::string> QueuePop(absl::string_view name, Duration timeout) = 0;
  // None: the queue is empty.
  virtual absl::StatusOr<std::optional<std::string>> TryQueuePop(absl::string_view name) = 0;
  virtual absl::StatusOr<int64_t> QueueLen(absl::string_view name) = 0;

  // Counts us at `key`, then waits until `world_size` have come. The count never goes back, also when we give
  // up: take a new key each time.
  //   Errors: kInvalidArgument: a world size below 1.
  virtual absl::Status Barrier(absl::string_view key, int64_t world_size, Duration timeout) = 0;
};

// What implementations share.

inline std::string StoreKey(absl::string_view key) { return absl::StrCat("/", key); }
std::vector<std::string> StoreKeys(const std::vector<std::string>& keys);
// Of the keys that a store has: those that StoreKey made, as they were.
std::vector<std::string> UserKeys(std::vector<std::string> store_keys);
// "key /a or /b": what somebody waits for. Many keys are counted.
std::string AwaitedText(absl::Span<const std::string> store_keys);
absl::Status QueueIsEmpty(absl::string_view name);

}  // namespace ddprun
