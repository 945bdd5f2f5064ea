// Implementations of RoundStores, which provide the worker stores of this node.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "boost/asio/io_context.hpp"
#include "launcher/agent/agent_world.h"
#include "rendezvous/c10d/c10d_server.h"
#include "rendezvous/server/coordinator_host.h"

namespace ddprun {

// The default: each Offer opens a new store in this process, on a new port.
class FreshStores : public RoundStores {
 public:
  // `address`: the address to listen on; empty: all addresses. `options`: applied to each store.
  FreshStores(boost::asio::io_context& io, std::string address, C10dServerOptions options = {});
  absl::StatusOr<int> Offer() override;
  void Withdraw() override;

 private:
  // Closes `store`, but gives clients on other nodes a few seconds to disconnect. The local workers have
  // already exited.
  void End(std::unique_ptr<WorkerStore> store);

  boost::asio::io_context& io_;
  const std::string address_;
  const C10dServerOptions options_;
  std::unique_ptr<WorkerStore> current_;
  std::vector<std::unique_ptr<WorkerStore>> ending_;
};

// For --rdzv-backend=static on the node with rank 0: workers connect to their store at --master-port, on
// which the coordinator also listens. Each Offer replaces the store on that port with an empty one.
class CoordinatorPortStores : public RoundStores {
 public:
  explicit CoordinatorPortStores(CoordinatorHost* host) : host_(host) {}
  absl::StatusOr<int> Offer() override;
  void Withdraw() override {}

 private:
  CoordinatorHost* const host_;
};

// For TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: the worker with rank 0 hosts the store itself. Each Offer
// returns a port that is free at the time of the call. The port is not reserved, so another process may bind
// the port before the worker does, which is unlikely.
class WorkerHostedStores : public RoundStores {
 public:
  explicit WorkerHostedStores(boost::asio::io_context& io) : io_(io) {}
  absl::StatusOr<int> Offer() override;
  void Withdraw() override {}

 private:
  boost::asio::io_context& io_;
};

}  // namespace ddprun
