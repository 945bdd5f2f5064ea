#include "worker_sdk/survivor/round_connections.h"

#include <utility>

namespace ddprun {

std::shared_ptr<Fabric> RoundConnections::NewFabric() {
  auto fabric = std::make_shared<Fabric>();
  const std::lock_guard<std::mutex> lock(mu_);
  std::erase_if(fabrics_, [](const std::weak_ptr<Fabric>& f) { return f.expired(); });
  fabrics_.push_back(fabric);
  if (!end_.ok()) fabric->End(end_);
  return fabric;
}

void RoundConnections::End(const Status& why) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (!end_.ok()) return;
  end_ = why;
  for (const std::weak_ptr<Fabric>& fabric : fabrics_) {
    if (const std::shared_ptr<Fabric> f = fabric.lock()) f->End(why);
  }
  store_->Cancel();
}

void RoundConnections::Retire(const Status& why) {
  End(why);
  std::vector<std::weak_ptr<Fabric>> fabrics;
  Status end;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    fabrics = std::exchange(fabrics_, {});
    end = end_;
  }
  for (const std::weak_ptr<Fabric>& fabric : fabrics) {
    if (const std::shared_ptr<Fabric> f = fabric.lock()) f->Retire(end);
  }
}

}  // namespace ddprun
