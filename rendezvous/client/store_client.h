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

// All calls block. The `timeout` of a call limits how long the call waits for keys, queue items or other
// callers of a barrier. The timeout passed to Connect limits each request that does not wait. If the store
// hangs, a call whose wait has timed out may block for up to 10 s more.
//   Keys:    the client adds the prefix "/" to each key, as torch's TCPStore does, so that all clients of a
//            store see the same keys. Limits: 8192 bytes for a key with its prefix, 8 MiB for a value,
//            131,072 items for a list, 64 MiB for a request. The same rules apply to queue names. A queue
//            and a key may have the same name.
//   Order:   the store executes the calls of one client in order. A call that returns only a Status may
//            return before the store has executed it.
//   Errors:  kInvalidArgument: a limit is exceeded; nothing was sent;
//            kDeadlineExceeded: a wait timed out; the message names the awaited keys;
//            kUnavailable: the store was lost or did not answer; if the call waited, the message names the
//            awaited keys;
//            kAborted: the store was replaced by the store of a later round.
//            After kUnavailable or kAborted, the client is unusable: create a new one. After any other
//            error, it stays usable. c10d TCP has no error replies, so a C10dClient reports errors of the
//            store (a value is not a number, the store is full) as kUnavailable.
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
  // Appends `value` to the value at `key`. An absent key counts as an empty value.
  virtual absl::Status Append(absl::string_view key, absl::string_view value) = 0;
  // Stores `desired` if the value at `key` equals `expected`. An absent key counts as an empty value.
  // Returns the resulting value, or `expected` if `key` is absent and `expected` is not empty.
  virtual absl::StatusOr<std::string> CompareSet(absl::string_view key, absl::string_view expected,
                                                 absl::string_view desired) = 0;
  // Adds `delta` to the decimal number at `key` and returns the sum. The number is parsed as by strtoll; an
  // absent key counts as 0. The sum wraps around on overflow.
  virtual absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta) = 0;
  // Waits until `key` exists, then returns its value. Returns an existing value even if `timeout` is 0 or
  // negative.
  virtual absl::StatusOr<std::string> Get(absl::string_view key, Duration timeout) = 0;
  // Like Get, but waits until all `keys` exist and returns their values in the same order.
  virtual absl::StatusOr<std::vector<std::string>> MultiGet(const std::vector<std::string>& keys,
                                                            Duration timeout) = 0;
  // Returns whether every key exists or names a nonempty queue. Returns true if `keys` is empty.
  virtual absl::StatusOr<bool> Check(const std::vector<std::string>& keys) = 0;
  // Waits until the store has seen each key exist or name a nonempty queue. A key still counts if it is
  // deleted before the wait ends.
  virtual absl::Status Wait(const std::vector<std::string>& keys, Duration timeout) = 0;
  // Returns the number of keys, including internal keys of torch's clients ("init/").
  virtual absl::StatusOr<int64_t> NumKeys() = 0;
  // Returns all keys that have the "/" prefix, with the prefix removed, in any order.
  virtual absl::StatusOr<std::vector<std::string>> ListKeys() = 0;
  // Deletes `key` and returns whether it existed. Affects neither queues nor waits in progress.
  virtual absl::StatusOr<bool> DeleteKey(absl::string_view key) = 0;

  virtual absl::Status QueuePush(absl::string_view name, absl::string_view item) = 0;
  // Waits until the queue has an item, then removes and returns its oldest item.
  //   Errors: kNotFound: the wait ended but the queue is empty, because another client removed the item or
  //           a key of that name was set.
  virtual absl::StatusOr<std::string> QueuePop(absl::string_view name, Duration timeout) = 0;
  // Removes and returns the oldest item without waiting, or returns nullopt if the queue is empty.
  virtual absl::StatusOr<std::optional<std::string>> TryQueuePop(absl::string_view name) = 0;
  virtual absl::StatusOr<int64_t> QueueLen(absl::string_view name) = 0;

  // Adds 1 to the count at `key`, then waits until the count reaches `world_size`. The count never decreases,
  // not even after a timeout, so each barrier needs a new key.
  //   Errors: kInvalidArgument: `world_size` is less than 1.
  virtual absl::Status Barrier(absl::string_view key, int64_t world_size, Duration timeout) = 0;
};

// --- Helpers for implementations

inline std::string StoreKey(absl::string_view key) { return absl::StrCat("/", key); }
std::vector<std::string> StoreKeys(const std::vector<std::string>& keys);
// Removes the prefix from each key. Drops keys without the prefix.
std::vector<std::string> UserKeys(std::vector<std::string> store_keys);
// Returns a description of awaited keys for messages, such as "key /a or /b". Names at most 8 keys.
std::string AwaitedText(absl::Span<const std::string> store_keys);
// Returns the kNotFound error of QueuePop.
absl::Status QueueIsEmpty(absl::string_view name);

}  // namespace ddprun
