#include "rendezvous/c10d/c10d_handler.h"

#include <variant>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

using c10d::AppendBytes;
using c10d::AppendI64;
using c10d::AppendU8;

struct Handler {
  ConnId conn;
  uint64_t max_reply_bytes;
  KvStore& store;
  std::string* reply;
  KvStore::Woken* woken;

  absl::Status operator()(const c10d::Ping& r) const {
    c10d::AppendU32(r.nonce, reply);
    return absl::OkStatus();
  }
  absl::Status operator()(const c10d::Set& r) const { return store.Set(r.key, r.value, woken); }
  absl::Status operator()(const c10d::CompareSet& r) const {
    ASSIGN_OR_RETURN(const absl::string_view value, store.CompareSet(r.key, r.expected, r.desired, woken));
    return Value(value, reply->size());
  }
  absl::Status operator()(const c10d::Get& r) const { return Value(store.Get(r.key), reply->size()); }
  absl::Status operator()(const c10d::Add& r) const {
    ASSIGN_OR_RETURN(const int64_t sum, store.Add(r.key, r.delta, woken));
    return Number(sum);
  }
  absl::Status operator()(const c10d::Check& r) const {
    AppendU8(
        static_cast<uint8_t>(store.Ready(r.keys) ? c10d::CheckReply::kReady : c10d::CheckReply::kNotReady),
        reply);
    return absl::OkStatus();
  }
  absl::Status operator()(const c10d::Wait& r) const { return StopWaitingIf(store.Wait(conn, r.keys)); }
  absl::Status operator()(const c10d::CancelWait&) const {
    store.Forget(conn);
    AppendU8(static_cast<uint8_t>(c10d::WaitReply::kWaitCanceled), reply);
    return absl::OkStatus();
  }
  absl::Status operator()(const c10d::NumKeys&) const { return Number(store.NumKeys()); }
  absl::Status operator()(const c10d::DeleteKey& r) const { return Number(store.DeleteKey(r.key) ? 1 : 0); }
  absl::Status operator()(const c10d::Append& r) const { return store.Append(r.key, r.value, woken); }
  absl::Status operator()(const c10d::MultiGet& r) const {
    const size_t start = reply->size();
    for (const absl::string_view key : r.keys) RETURN_IF_ERROR(Value(store.Get(key), start));
    return absl::OkStatus();
  }
  absl::Status operator()(const c10d::MultiSet& r) const {
    absl::InlinedVector<KvStore::Pair, 8> pairs;
    pairs.reserve(r.pairs.size());
    for (const c10d::KeyValue& pair : r.pairs) pairs.push_back({pair.key, pair.value});
    return store.MultiSet(pairs, woken);
  }
  absl::Status operator()(const c10d::QueuePush& r) const { return store.QueuePush(r.key, r.value, woken); }
  absl::Status operator()(const c10d::QueuePop& r) const {
    AppendI64(store.QueueLen(r.key), reply);
    std::string item;
    if (store.QueuePop(r.key, &item)) AppendBytes(item, reply);
    return absl::OkStatus();
  }
  absl::Status operator()(const c10d::QueueLen& r) const { return Number(store.QueueLen(r.key)); }
  absl::Status operator()(const c10d::ListKeys&) const {
    const size_t start = reply->size();
    AppendI64(store.NumKeys(), reply);
    absl::Status status;
    store.ForEachKey([&](absl::string_view key) {
      if (status.ok()) status = Value(key, start);
    });
    return status;
  }
  absl::Status operator()(const c10d::Barrier& r) const {
    return StopWaitingIf(store.Barrier(conn, r.key, r.world_size, woken));
  }

 private:
  absl::Status Number(int64_t n) const {
    AppendI64(n, reply);
    return absl::OkStatus();
  }
  // Appends `value` to the reply that begins at `start`. If the reply would exceed the limit, removes the
  // whole reply and returns an error.
  absl::Status Value(absl::string_view value, size_t start) const {
    if (reply->size() - start + sizeof(int64_t) + value.size() > max_reply_bytes) {
      reply->resize(start);
      return absl::ResourceExhaustedError(
          absl::StrCat("the reply would have more than ", max_reply_bytes, " bytes"));
    }
    AppendBytes(value, reply);
    return absl::OkStatus();
  }
  absl::Status StopWaitingIf(const absl::StatusOr<bool>& ready) const {
    RETURN_IF_ERROR(ready.status());
    if (*ready) AppendU8(static_cast<uint8_t>(c10d::WaitReply::kStopWaiting), reply);
    return absl::OkStatus();
  }
};

}  // namespace

absl::Status HandleC10dRequest(const c10d::Request& request, ConnId conn, c10d::Dialect dialect,
                               uint64_t max_reply_bytes, KvStore* store, std::string* reply,
                               KvStore::Woken* woken) {
  // Clients older than PyTorch 2.1 abandon a wait without sending CANCEL_WAIT. Such a client would mistake a
  // late reply to the wait for the reply to its next request. Therefore, the next request cancels the wait.
  if (dialect != c10d::Dialect::kVersioned && !std::holds_alternative<c10d::CancelWait>(request)) {
    store->Forget(conn);
  }
  return std::visit(Handler{conn, max_reply_bytes, *store, reply, woken}, request);
}

}  // namespace ddprun
