// The worker stores of this node, one for each round.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "boost/asio/io_context.hpp"
#include "launcher/agent/agent_world.h"
#include "rendezvous/c10d/c10d_server.h"
#include "rendezvous/server/coordinator_host.h"

namespace ddprun {

// The default: each offer is a new store in this process, on a new port.
class FreshStores : public RoundStores {
 public:
  // `address`: the address to listen on; empty: all addresses. `options`: applied to each store.
  FreshStores(boost::asio::io_context& io, std::string address, C10dServerOptions options = {});
  absl::StatusOr<int> Offer() override;
  void Withdraw() override;

 private:
  // Closes `store`. The local workers are gone; workers on other nodes get a few seconds to disconnect.
  void End(std::unique_ptr<WorkerStore> store);

  boost::asio::io_context& io_;
  const std::string address_;
  const C10dServerOptions options_;
  std::unique_ptr<WorkerStore> current_;
  std::vector<std::unique_ptr<WorkerStore>> ending_;
};

// --rdzv-backend=static on node rank 0: workers expect their store at --master-port, where the coordinator
// listens. Each offer gives the store on that port an empty key space.
class CoordinatorPortStores : public RoundStores {
 public:
  explicit CoordinatorPortStores(CoordinatorHost* host) : host_(host) {}
  absl::StatusOr<int> Offer() override;
  void Withdraw() override {}

 private:
  CoordinatorHost* const host_;
};

// TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: the worker with rank 0 hosts the store itself. Each offer is a port
// that is free at the time of the call. The port is not reserved: another process may take it before the
// worker binds it, which is unlikely.
class WorkerHostedStores : public RoundStores {
 public:
  explicit WorkerHostedStores(boost::asio::io_context& io) : io_(io) {}
  absl::StatusOr<int> Offer() override;
  void Withdraw() override {}

 private:
  boost::asio::io_context& io_;
};

}  // namespace ddprun
