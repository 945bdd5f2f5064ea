// What connects this process to the other ranks of its round: the client of the round's store, and the groups of all calls of
// Connect.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/fabric.h"
#include "worker_sdk/store/store.h"

namespace ddprun {

//   Threads: any, apart from Retire.
class RoundConnections {
 public:
  explicit RoundConnections(std::unique_ptr<Store> store) : store_(std::move(store)) {}

  [[nodiscard]] Store& store() const { return *store_; }
  // The fabric of one call of Connect. If the round has ended, communication has ended in it.
  std::shared_ptr<Fabric> NewFabric();
  // Ends communication in all groups, also in those of later fabrics, with the error `why`, unless the round has already ended; a
  // setup that blocks fails. Does not block.
  void End(const Status& why);
  // As Fabric::Retire, for all fabrics.
  //   Threads: the one that calls NewFabric.
  void Retire(const Status& why);

 private:
  const std::unique_ptr<Store> store_;
  std::mutex mu_;
  Status end_;                                  // OK until End. Guarded by mu_
  std::vector<std::weak_ptr<Fabric>> fabrics_;  // owned by their groups. Guarded by mu_
};

}  // namespace ddprun
