// A KvStore and its waiting clients, which may be c10d connections or gRPC calls. Pure.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "rendezvous/core/kv_store.h"

namespace ddprun {

// A client operates on the store, sends its own reply, and then calls Wake to notify the woken waiters. For
// example:
//
//   auto sum = hub.store().Add(key, 1, hub.woken());
//   Answer(sum);
//   hub.Wake();
//
//   Threads: one caller at a time.
class StoreHub {
 public:
  // Callbacks must not call the hub, except Leave with the waiter's own id.
  class Waiter {
   public:
    // The wait has ended. Called at most once for each wait.
    virtual void OnWoken() = 0;
    // The store is being destroyed. The waiter has been removed and need not call Leave.
    virtual void OnStoreGone() = 0;

   protected:
    ~Waiter() = default;
  };

  explicit StoreHub(const KvLimits& limits = {}) : store_(limits) {}
  ~StoreHub();
  StoreHub(const StoreHub&) = delete;
  StoreHub& operator=(const StoreHub&) = delete;

  // Registers a waiter, which may wait under the returned id until Leave. `waiter` is borrowed until Leave or
  // OnStoreGone.
  ConnId Enter(Waiter* waiter);
  // Removes the waiter and drops its wait. No callback is invoked afterwards, even if `id` is in woken().
  void Leave(ConnId id);

  KvStore& store() { return store_; }
  const KvStore& store() const { return store_; }
  // The `woken` argument for operations of store().
  KvStore::Woken* woken() { return &woken_; }
  // Notifies the waiters in woken(), in order.
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
