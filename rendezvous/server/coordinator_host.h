// The coordinator with its one port: gRPC for agents, c10d TCP or gRPC for store clients, HTTP for people and
// scripts.
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

//   Threads: that of `io`; gRPC has its own once an agent has connected over it.
//   Owns:    the port and everything that came through it.
class CoordinatorHost {
 public:
  // `address` and `port` as for PortListener::Open, and its errors.
  static absl::StatusOr<std::unique_ptr<CoordinatorHost>> Open(boost::asio::io_context& io,
                                                               const std::string& address, int port,
                                                               Coordinator::Log log);
  CoordinatorHost(const CoordinatorHost&) = delete;
  CoordinatorHost& operator=(const CoordinatorHost&) = delete;

  // As Coordinator::RecordTo; `sink` must live as long as this.
  void RecordTo(StepSink sink) { coordinator_.RecordTo(std::move(sink)); }

  int port() const { return listener_->port(); }
  // A link for the agent of this process; `address` is where other nodes' workers reach it.
  std::unique_ptr<CoordinatorLink> Link(const std::string& address);
  // Of the agents in other processes, as seen from here.
  std::vector<std::string> AgentAddresses() const { return coordinator_.AgentAddresses(); }
  // An empty key space for store clients that come from now on. Earlier connections keep theirs until they
  // hang up, at most until the next renewal; gRPC clients are told at their next call that it is gone.
  void RenewStore();

  // The one that clients who come now see.
  const KvStore& StoreForTest() const { return store_->store(); }

  // Ends what jobs are left with `reason`: waits until the workers of each are stopped, which the job's drain
  // timeout bounds, and then, for `farewell` at most, until all agents have heard their last word and hung
  // up. Then ends the waits of store clients, frees the port, and waits until clients that are left have hung
  // up, a second at most. Then calls `done`, once, not from within.
  void Close(const std::string& reason, Duration farewell, absl::AnyInvocable<void()> done);
  // The same without waiting for workers to stop; after Close.
  void CloseNow();

 private:
  CoordinatorHost(boost::asio::io_context& io, Coordinator::Log log);
  std::unique_ptr<C10dServer> NewStore();
  // Logs that one had to be hung up on.
  std::function<void(const std::string& peer, const absl::Status& why)> ClientClosed();
  HttpReply Page(const HttpTarget& target);
  // A warden says that its node is gone.
  HttpReply DeleteNode(const HttpTarget& target);
  void CheckAgentsGone();
  void EndStores();

  boost::asio::io_context& io_;
  const Coordinator::Log log_;
  Coordinator coordinator_;
  std::unique_ptr<C10dServer> store_;
  std::unique_ptr<C10dServer> old_store_;  // of the round before
  GrpcPort grpc_;                          // serves store_, too
  const HttpHandler pages_;
  std::unique_ptr<PortListener> listener_;
  boost::asio::steady_timer close_timer_;
  std::string close_reason_;
  absl::AnyInvocable<void()> closed_;  // empty: not closing, or done
  Duration farewell_{};
  bool said_farewell_ = false;
  int open_stores_ = 0;  // whose clients are being waited for
  bool ending_stores_ = false;
};

}  // namespace ddprun
