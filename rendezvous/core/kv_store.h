// The key-value store behind a rendezvous: what PyTorch's TCPStore promises, without its wire. Pure.
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

// Somebody who may wait: one connection, never reused within a store.
using ConnId = StrongInt<struct ConnTag>;

struct KvLimits {
  // Of keys, values, queued items and waits together, with a rough share for the tables that hold them, and
  // of what those who use the store have charged to it.
  uint64_t max_bytes = uint64_t{1} << 30;
};

// The largest reply to one request of a client: a few bytes of MULTI_GET can ask for gigabytes.
inline constexpr uint64_t kDefaultMaxReplyBytes = 64 << 20;

// One map of keys to values, one of names to queues, and who waits for what. Values and queues are apart: a
// key may name one of each.
//
// Every operation is atomic. Those that can end a wait append to `woken` the connections that wait no more,
// in the order in which they are to be told so, after the caller has got its own answer. A wait ends once:
// with its connection in `woken`, or silently by a newer Wait, CancelWait or Forget.
//   Errors:  kResourceExhausted: the store would grow beyond its limit;
//            kInvalidArgument: the value is no number, for Add and Barrier. The store is then as it was.
//   Views:   returned ones live until the next call that is not const.
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
  // All pairs or none.
  absl::Status MultiSet(absl::Span<const Pair> pairs, Woken* woken);
  // Concatenates, or creates.
  absl::Status Append(absl::string_view key, absl::string_view value, Woken* woken);
  // Stores `desired` if the value is `expected`, or if there is none and `expected` is empty. Returns what is
  // there afterwards, or `expected` when nothing is.
  absl::StatusOr<absl::string_view> CompareSet(absl::string_view key, absl::string_view expected,
                                               absl::string_view desired, Woken* woken);
  // The value is decimal text, read as strtoll reads it; the sum wraps around. Absent counts as 0. Returns
  // the sum.
  absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta, Woken* woken);
  // Empty when absent; Contains tells the difference.
  absl::string_view Get(absl::string_view key) const;
  bool Contains(absl::string_view key) const { return values_.contains(key); }
  int64_t NumKeys() const { return static_cast<int64_t>(values_.size()); }
  void ForEachKey(absl::FunctionRef<void(absl::string_view key)> visit) const;  // in their order
  // True if it was there. Touches no queue, and no wait: who saw the key saw it.
  bool DeleteKey(absl::string_view key);

  // Appends to the queue and ends the wait of the one who has waited longest for it.
  absl::Status QueuePush(absl::string_view name, absl::string_view item, Woken* woken);
  // Takes the oldest item; none if the queue is empty.
  bool QueuePop(absl::string_view name, std::string* item);
  int64_t QueueLen(absl::string_view name) const;

  // A key is ready when it has a value or names a queue that is not empty. No keys: ready.
  bool Ready(absl::Span<const absl::string_view> keys) const;
  // True: all are ready, nobody waits. False: `conn` waits until each key that is missing now has come once;
  // one that goes again counts as come.
  absl::StatusOr<bool> Wait(ConnId conn, absl::Span<const absl::string_view> keys);
  // Counts one more at `key`, as Add does. True: `world_size` or more have come and everyone who waits for
  // `key` is woken. False: `conn` waits for `key`. The count never goes back.
  absl::StatusOr<bool> Barrier(ConnId conn, absl::string_view key, int64_t world_size, Woken* woken);
  // Forgets what `conn` waits for, if anything: on CANCEL_WAIT, and when the connection is closed.
  void Forget(ConnId conn);
  bool IsWaiting(ConnId conn) const { return waits_.contains(conn); }

  // Counts `bytes` of a caller's own, say a connection's buffers, against the limit of all, until they are
  // refunded.
  absl::Status Charge(uint64_t bytes, absl::string_view what);
  void Refund(uint64_t bytes) { bytes_ -= bytes; }

  int64_t NumWaiting() const { return static_cast<int64_t>(waits_.size()); }
  uint64_t bytes() const { return bytes_; }

 private:
  // A wait is a list of (key, place in the key's line); a place knows where in that list it stands. So a
  // connection leaves all its lines, and a line all its waits, in time proportional to what is removed.
  struct Place {
    ConnId conn;
    size_t index;  // into Waits of conn
  };
  using Line = std::list<Place>;
  using Lines = absl::node_hash_map<std::string, Line>;  // entries stay where they are
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
  absl::flat_hash_map<std::string, std::list<std::string>> queues_;  // none of them empty
  Lines lines_;                                                      // none of them empty
  absl::flat_hash_map<ConnId, Waits> waits_;                         // none of them empty
};

}  // namespace ddprun
