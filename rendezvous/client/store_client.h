// The interface and contract of store clients, independent of the protocol.
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

// All calls block: a call with a timeout blocks for at most that timeout, any other call for at most the
// timeout of Connect. If the store hangs, cancelling a wait takes up to 5 s more.
//   Keys:    prefixed with "/", as in torch's TCPStore, so that all clients of a store see the same keys.
//            Limits: 8192 bytes for a key with its prefix, 8 MiB for a value, 131,072 items for a list,
//            64 MiB for a request. Queue names follow the same rules and may equal keys.
//   Order:   the calls of a client are executed in order. A call that returns only a Status may return before
//            it is executed; a later call of the same client that returns a value is executed after it.
//   Errors:  kInvalidArgument: a limit is exceeded; nothing was sent;
//            kDeadlineExceeded: names the awaited keys;
//            kUnavailable: the store was lost or did not answer; names the awaited keys;
//            kAborted: the store was replaced by the store of a later round.
//            After kUnavailable or kAborted the client is unusable (create a new one); else it stays usable.
//            c10d TCP cannot express errors: store errors (not a number, store full) become kUnavailable.
//   Threads: one caller at a time.
class StoreClient {
 public:
  struct Pair {
    absl::string_view key, value;
  };

  virtual ~StoreClient() = default;

  virtual absl::Status Set(absl::string_view key, absl::string_view value) = 0;
  // Stores all pairs or none. If a key is repeated, its last value wins.
  virtual absl::Status MultiSet(absl::Span<const Pair> pairs) = 0;
  // Appends to the value, or creates it.
  virtual absl::Status Append(absl::string_view key, absl::string_view value) = 0;
  // Stores `desired` if the value at `key` equals `expected` (absent = empty). Returns the resulting value,
  // or `expected` if `key` is absent and `expected` is not empty.
  virtual absl::StatusOr<std::string> CompareSet(absl::string_view key, absl::string_view expected,
                                                 absl::string_view desired) = 0;
  // Adds `delta` to the decimal number at `key`, which is parsed like strtoll (absent = 0). Returns the sum,
  // which wraps around on overflow.
  virtual absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta) = 0;
  // Waits until `key` exists, then returns its value. An existing value is returned whatever `timeout` is.
  virtual absl::StatusOr<std::string> Get(absl::string_view key, Duration timeout) = 0;
  // Like Get, for several keys.
  virtual absl::StatusOr<std::vector<std::string>> MultiGet(const std::vector<std::string>& keys,
                                                            Duration timeout) = 0;
  // Returns whether each key exists or names a nonempty queue. True for an empty list.
  virtual absl::StatusOr<bool> Check(const std::vector<std::string>& keys) = 0;
  // Waits until each key that is missing now has existed once.
  virtual absl::Status Wait(const std::vector<std::string>& keys, Duration timeout) = 0;
  // The number includes internal keys of torch's clients ("init/").
  virtual absl::StatusOr<int64_t> NumKeys() = 0;
  // Returns all keys that have the "/" prefix, with the prefix removed, in any order.
  virtual absl::StatusOr<std::vector<std::string>> ListKeys() = 0;
  // Returns whether `key` existed. Does not affect queues or waits.
  virtual absl::StatusOr<bool> DeleteKey(absl::string_view key) = 0;

  virtual absl::Status QueuePush(absl::string_view name, absl::string_view item) = 0;
  // Waits for an item and removes the oldest.
  //   Errors: kNotFound: another client took the item, or a key of that name was set.
  virtual absl::StatusOr<std::string> QueuePop(absl::string_view name, Duration timeout) = 0;
  // nullopt: the queue is empty.
  virtual absl::StatusOr<std::optional<std::string>> TryQueuePop(absl::string_view name) = 0;
  virtual absl::StatusOr<int64_t> QueueLen(absl::string_view name) = 0;

  // Counts the caller at `key`, then waits until the count reaches `world_size`. The count never decreases,
  // not even after a timeout: use a new key each time.
  //   Errors: kInvalidArgument: a world size below 1.
  virtual absl::Status Barrier(absl::string_view key, int64_t world_size, Duration timeout) = 0;
};

// --- Helpers for implementations

inline std::string StoreKey(absl::string_view key) { return absl::StrCat("/", key); }
std::vector<std::string> StoreKeys(const std::vector<std::string>& keys);
// The inverse of StoreKeys. Drops keys without the prefix.
std::vector<std::string> UserKeys(std::vector<std::string> store_keys);
// Describes the keys of a wait for messages: "key /a or /b". Names at most 8 keys.
std::string AwaitedText(absl::Span<const std::string> store_keys);
absl::Status QueueIsEmpty(absl::string_view name);

}  // namespace ddprun
