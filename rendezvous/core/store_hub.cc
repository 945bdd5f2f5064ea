#include "rendezvous/core/store_hub.h"

#include <algorithm>
#include <utility>

namespace ddprun {

StoreHub::~StoreHub() {
  for (const auto& [id, waiter] : std::exchange(waiters_, {})) waiter->OnStoreGone();
}

ConnId StoreHub::Enter(Waiter* waiter) {
  const ConnId id(next_id_++);
  waiters_.emplace(id, waiter);
  return id;
}

void StoreHub::Leave(ConnId id) {
  store_.Forget(id);
  waiters_.erase(id);
}

void StoreHub::WakeAll() {
  for (const ConnId id : woken_) {
    const auto it = waiters_.find(id);
    if (it != waiters_.end()) it->second->OnWoken();
  }
  woken_.clear();
}

}  // namespace ddprun
