// The coordinator with its port: gRPC for agents and ddpctl, c10d TCP or gRPC for store clients, HTTP for
// people and scripts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "net/http_server.h"
#include "net/port_listener.h"
#include "rendezvous/c10d/c10d_server.h"
#include "rendezvous/client/coordinator_link.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/grpc/grpc_port.h"

namespace ddprun {

//   Threads: the thread of `io`; gRPC has its own threads after the first gRPC connection.
//   Owns:    the port and its connections.
class CoordinatorHost {
 public:
  // `address`, `port` and errors as for PortListener::Open.
  static absl::StatusOr<std::unique_ptr<CoordinatorHost>> Open(boost::asio::io_context& io,
                                                               const std::string& address, int port,
                                                               Coordinator::Log log);
  CoordinatorHost(const CoordinatorHost&) = delete;
  CoordinatorHost& operator=(const CoordinatorHost&) = delete;

  // Like Coordinator::RecordTo. Objects that `sink` refers to must outlive this object.
  void RecordTo(StepSink sink) { coordinator_.RecordTo(std::move(sink)); }

  int port() const { return listener_->port(); }
  // Creates a link for the agent of this process. `address` is the agent's address for workers of other
  // nodes.
  std::unique_ptr<CoordinatorLink> Link(const std::string& address);
  // The addresses of agents in other processes, as seen from here.
  std::vector<std::string> AgentAddresses() const { return coordinator_.AgentAddresses(); }
  // Creates an empty store for later store clients. Earlier c10d connections keep the previous store until
  // they disconnect or until the next renewal. The next call of an earlier gRPC client fails.
  void RenewStore();

  // The store for new clients.
  const KvStore& StoreForTest() const { return store_->store(); }

  // Ends the open jobs with `reason`. Waits until their workers have stopped (bounded by the drain timeout of
  // each job), then for at most `farewell` until all agents have received their dismissal and disconnected.
  // Then ends the waits of store clients, closes the port, and waits at most 1 s for the remaining clients to
  // disconnect. Then invokes `done` once, never from within this call.
  void Close(const std::string& reason, Duration farewell, absl::AnyInvocable<void()> done);
  // Stops waiting for workers. Call after Close.
  void CloseNow();

 private:
  CoordinatorHost(boost::asio::io_context& io, Coordinator::Log log);
  std::unique_ptr<C10dServer> NewStore();
  // Returns a callback that logs that a store client was disconnected because of an error.
  std::function<void(const std::string& peer, const absl::Status& why)> ClientClosed();
  HttpReply Page(const HttpTarget& target);
  // Handles the report of a warden that its node is gone.
  HttpReply DeleteNode(const HttpTarget& target);
  void CheckAgentsGone();
  void EndStores();

  boost::asio::io_context& io_;
  const Coordinator::Log log_;
  Coordinator coordinator_;
  std::unique_ptr<C10dServer> store_;
  std::unique_ptr<C10dServer> old_store_;  // replaced by the last RenewStore
  GrpcPort grpc_;                          // also serves store_
  const HttpHandler pages_;
  std::unique_ptr<PortListener> listener_;
  boost::asio::steady_timer close_timer_;
  std::string close_reason_;
  absl::AnyInvocable<void()> closed_;  // empty: not closing, or closed
  Duration farewell_{};
  bool said_farewell_ = false;
  int open_stores_ = 0;  // stores whose clients have not all disconnected
  bool ending_stores_ = false;
};

}  // namespace ddprun
