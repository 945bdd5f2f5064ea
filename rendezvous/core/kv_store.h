// A key-value store with the semantics of PyTorch's TCPStore, without the wire protocol. Pure.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace ddprun {

// Identifies a client that may wait: a connection or a call. Never reused within a store.
using ConnId = StrongInt<struct ConnTag>;

struct KvLimits {
  // Limit for the total size of keys, values, queued items and waits, including an estimate of the table
  // overhead and the bytes charged by callers.
  uint64_t max_bytes = uint64_t{1} << 30;
};

// Maximum size of the reply to one request. Without it, a MULTI_GET of a few bytes could request gigabytes.
inline constexpr uint64_t kDefaultMaxReplyBytes = 64 << 20;

// A map of keys to values, a map of names to queues, and the pending waits. Values and queues have separate
// namespaces: a key may name both a value and a queue.
//
// Every operation is atomic. Operations that can end waits append the connections whose waits ended to
// `woken`. The caller first sends its own reply and then notifies these connections in the given order. Each
// wait ends exactly once: either its connection is appended to `woken`, or Forget or a newer Wait or Barrier
// of the same connection drops the wait silently.
//   Errors:  kResourceExhausted: the store would exceed its limit;
//            kInvalidArgument: the value is not a number (Add, Barrier).
//            The contents are unchanged after an error.
//   Views:   returned views are valid until the next non-const call.
//   Threads: one caller at a time.
//   Source:  docs/protocol.md, "c10d TCP".
class KvStore {
 public:
  using Woken = std::vector<ConnId>;
  struct Pair {
    absl::string_view key, value;
  };

  explicit KvStore(const KvLimits& limits = {});

  absl::Status Set(absl::string_view key, absl::string_view value, Woken* woken);
  // Stores all pairs or none.
  absl::Status MultiSet(absl::Span<const Pair> pairs, Woken* woken);
  // Appends `value` to the value at `key`. An absent key counts as an empty value.
  absl::Status Append(absl::string_view key, absl::string_view value, Woken* woken);
  // Stores `desired` if the value equals `expected`, or if the key is absent and `expected` is empty. Returns
  // the resulting value, or `expected` if the key is still absent.
  absl::StatusOr<absl::string_view> CompareSet(absl::string_view key, absl::string_view expected,
                                               absl::string_view desired, Woken* woken);
  // Adds `delta` to the decimal number at `key` and returns the sum. The number is parsed as by strtoll; an
  // absent key counts as 0. The sum wraps around on overflow.
  absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta, Woken* woken);
  // Returns an empty view if the key is absent or its value is empty. Contains distinguishes the two cases.
  absl::string_view Get(absl::string_view key) const;
  bool Contains(absl::string_view key) const { return values_.contains(key); }
  int64_t NumKeys() const { return static_cast<int64_t>(values_.size()); }
  void ForEachKey(absl::FunctionRef<void(absl::string_view key)> visit) const;  // in ascending order
  // Deletes the key and returns whether it existed. Affects neither queues nor waits that have already seen
  // the key.
  bool DeleteKey(absl::string_view key);

  // Appends to the queue. Only the oldest wait for `name` sees the queue become ready.
  absl::Status QueuePush(absl::string_view name, absl::string_view item, Woken* woken);
  // Moves the oldest item to `*item`. Returns false if the queue is empty.
  bool QueuePop(absl::string_view name, std::string* item);
  int64_t QueueLen(absl::string_view name) const;

  // Returns whether all keys are ready. A key is ready if it has a value or names a nonempty queue.
  bool Ready(absl::Span<const absl::string_view> keys) const;
  // Returns true if all keys are ready; `conn` then does not wait. Otherwise returns false, and `conn` waits
  // until each missing key has become ready. A key still counts if it is deleted before the wait ends.
  absl::StatusOr<bool> Wait(ConnId conn, absl::Span<const absl::string_view> keys);
  // Adds 1 to the count at `key`. Returns true if the count has reached `world_size`; all waits for `key`
  // then end. Otherwise returns false, and `conn` waits for `key`. The count is not reset when the barrier
  // opens.
  absl::StatusOr<bool> Barrier(ConnId conn, absl::string_view key, int64_t world_size, Woken* woken);
  // Drops the wait of `conn`, if any. Must be called on CANCEL_WAIT and when the connection closes.
  void Forget(ConnId conn);
  bool IsWaiting(ConnId conn) const { return waits_.contains(conn); }

  // Charges `bytes` of the caller's own memory, for example the buffers of a connection, against the limit
  // until the caller refunds them. `what` names the memory in the error message.
  absl::Status Charge(uint64_t bytes, absl::string_view what);
  void Refund(uint64_t bytes) { bytes_ -= bytes; }

  int64_t NumWaiting() const { return static_cast<int64_t>(waits_.size()); }
  uint64_t bytes() const { return bytes_; }

 private:
  // Each missing key has a Line with one Place for each wait for the key, in the order in which the waits
  // began. The Waits of a connection have one Missing for each of its Places. The Missing and the Place refer
  // to each other. Removing a connection from its lines, or clearing a line, takes time proportional to the
  // number of removed entries.
  struct Place {
    ConnId conn;
    size_t index;  // index of the Missing in the Waits of `conn`
  };
  using Line = std::list<Place>;
  using Lines = absl::node_hash_map<std::string, Line>;  // pointers to entries are stable
  struct Missing {
    Lines::value_type* line;
    Line::iterator place;
  };
  using Waits = std::vector<Missing>;

  bool Ready(absl::string_view key) const;
  absl::Status Reserve(uint64_t more, absl::string_view what) const;
  absl::Status Put(absl::string_view key, absl::string_view value);
  absl::Status Replace(std::string& old, absl::string_view value, absl::string_view what);
  void WakeAll(absl::string_view key, Woken* woken);
  void Join(ConnId conn, absl::string_view key);
  void Arrived(Lines::value_type& line, Woken* woken);
  void LeaveLine(Missing missing);

  const KvLimits limits_;
  uint64_t bytes_ = 0;
  absl::flat_hash_map<std::string, std::string> values_;
  absl::flat_hash_map<std::string, std::list<std::string>> queues_;  // contains no empty queue
  Lines lines_;                                                      // contains no empty line
  absl::flat_hash_map<ConnId, Waits> waits_;                         // contains no empty Waits
};

}  // namespace ddprun
