// A KvStore and those who wait in it, over whichever face they came: a c10d connection, a gRPC call. Pure.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "rendezvous/core/kv_store.h"

namespace ddprun {

// A face asks the store, gives its own answer, and then has the hub tell those whom that has woken:
//
//   auto sum = hub.store().Add(key, 1, hub.woken());
//   Answer(sum);
//   hub.Wake();
//
//   Threads: one caller at a time.
class StoreHub {
 public:
  // Neither call may come back to the hub before it has returned, but for Leave(itself).
  class Waiter {
   public:
    // What it waited for came. Once for each wait.
    virtual void OnWoken() = 0;
    // The store is no more, and the waiter is out of it: it need not leave.
    virtual void OnStoreGone() = 0;

   protected:
    ~Waiter() = default;
  };

  explicit StoreHub(const KvLimits& limits = {}) : store_(limits) {}
  ~StoreHub();
  StoreHub(const StoreHub&) = delete;
  StoreHub& operator=(const StoreHub&) = delete;

  // Who may wait under the id returned, until it leaves. `waiter` is the caller's.
  ConnId Enter(Waiter* waiter);
  // Forgets what it waits for. Nothing more is heard of it, even if it was woken just now.
  void Leave(ConnId id);

  KvStore& store() { return store_; }
  const KvStore& store() const { return store_; }
  // For the operations of store() that can end waits.
  KvStore::Woken* woken() { return &woken_; }
  // Tells those in woken(), in their order.
  void Wake() {
    if (!woken_.empty()) WakeAll();
  }

 private:
  void WakeAll();

  KvStore store_;
  KvStore::Woken woken_;
  absl::flat_hash_map<ConnId, Waiter*> waiters_;
  int64_t next_id_ = 0;
};

}  // namespace ddprun
