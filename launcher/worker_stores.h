// The worker stores that this node offers, one a round.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "boost/asio/io_context.hpp"
#include "launcher/agent/agent_world.h"
#include "rendezvous/c10d/c10d_server.h"
#include "rendezvous/server/coordinator_host.h"

namespace ddprun {

// Each offer is a store of its own on a port of its own.
class FreshStores : public RoundStores {
 public:
  // `address`: where they listen; empty for all of this host. `options`: of each store.
  FreshStores(boost::asio::io_context& io, std::string address, C10dServerOptions options = {});
  absl::StatusOr<int> Offer() override;
  void Withdraw() override;

 private:
  // The workers of this node are gone; those of others may need a moment to see that they shall go.
  void End(std::unique_ptr<WorkerStore> store);

  boost::asio::io_context& io_;
  const std::string address_;
  const C10dServerOptions options_;
  std::unique_ptr<WorkerStore> current_;
  std::vector<std::unique_ptr<WorkerStore>> ending_;
};

// --rdzv-backend=static on node rank 0: workers are promised --master-port, which is the coordinator's. The
// key space behind it is a new one for each round.
class CoordinatorPortStores : public RoundStores {
 public:
  explicit CoordinatorPortStores(CoordinatorHost* host) : host_(host) {}
  absl::StatusOr<int> Offer() override;
  void Withdraw() override {}

 private:
  CoordinatorHost* const host_;
};

// TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: the worker with rank 0 hosts the store itself. Each offer is a port
// that is free now; that it still is when the worker binds it is likely, not certain: none that is given to
// those who ask for any, or to outgoing connections.
class WorkerHostedStores : public RoundStores {
 public:
  explicit WorkerHostedStores(boost::asio::io_context& io) : io_(io) {}
  absl::StatusOr<int> Offer() override;
  void Withdraw() override {}

 private:
  boost::asio::io_context& io_;
};

}  // namespace ddprun
