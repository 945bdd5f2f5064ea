// The coordinator and its port. The port serves gRPC to agents and ddpctl, c10d TCP and gRPC to store
// clients, and HTTP to users, scripts and wardens.
#pragma once

#include <functional>
#include <memory>
#include <optional>
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
#include "rendezvous/grpc/voter_service.h"
#include "rendezvous/voters/witness.h"

namespace ddprun {

// Runs a coordinator and its stores on one port.
//   Threads: all calls and callbacks on the thread of `io`. gRPC starts its own threads when the first gRPC
//            connection arrives.
//   Owns:    the port and its connections.
class CoordinatorHost {
 public:
  // `address`, `port` and the errors are those of PortListener::Open.
  static absl::StatusOr<std::unique_ptr<CoordinatorHost>> Open(boost::asio::io_context& io,
                                                               const std::string& address, int port,
                                                               Coordinator::Log log,
                                                               CoordinatorLimits limits = {});
  // Opens it on the first of the ports that is free.
  static absl::StatusOr<std::unique_ptr<CoordinatorHost>> OpenFirst(boost::asio::io_context& io,
                                                                    const std::string& address,
                                                                    const std::vector<int>& ports,
                                                                    const Coordinator::Log& log,
                                                                    CoordinatorLimits limits = {});
  CoordinatorHost(const CoordinatorHost&) = delete;
  CoordinatorHost& operator=(const CoordinatorHost&) = delete;

  // Like Coordinator::RecordTo. Objects to which `sink` refers must outlive this object.
  void RecordTo(StepSink sink) { coordinator_.RecordTo(std::move(sink)); }

  int port() const { return listener_->port(); }
  Coordinator& coordinator() { return coordinator_; }
  int num_open_jobs() const { return coordinator_.num_open_jobs(); }
  // Creates a link for the agent in this process. `address` is the address at which workers on other nodes
  // reach this node.
  std::unique_ptr<CoordinatorLink> Link(const std::string& address);
  // The addresses of agents in other processes, as this process sees them.
  std::vector<std::string> AgentAddresses() const { return coordinator_.AgentAddresses(); }
  // Replaces the store with an empty store. Existing c10d connections keep the previous store until they
  // disconnect or until the next call of RenewStore. gRPC calls with the id of the previous store fail.
  void RenewStore();

  // With CoordinatorLimits::registered: the process at HOST:PORT leads the job, so that those who ask this one find it. Empty: it
  // is not known.
  void SetLeader(std::string address) { leader_ = std::move(address); }
  // Sets what answers requests to the voter of this process.
  void ServeVotes(AnswerVote answer) { grpc_.ServeVotes(std::move(answer)); }
  // This process votes in jobs that it does not coordinate, and names their coordinators to those who ask.
  void BecomeWitness();

  // The current store.
  const KvStore& StoreForTest() const { return store_->store(); }

  // Ends the open jobs with `reason`; with CoordinatorLimits::registered, hands the job over instead:
  // 1. Waits for the workers of all jobs to stop, for each job at most its drain timeout.
  // 2. Waits at most `farewell` for all agents to receive their dismissal and to disconnect.
  // 3. Ends all pending waits of store clients and closes the port.
  // 4. Waits at most 1 s for the remaining clients to disconnect.
  // 5. Invokes `done` exactly once, never from within this call.
  void Close(const std::string& reason, Duration farewell, absl::AnyInvocable<void()> done);
  // Ends the wait for workers (step 1 of Close) immediately. Must be called after Close.
  void CloseNow();

 private:
  CoordinatorHost(boost::asio::io_context& io, Coordinator::Log log, CoordinatorLimits limits);
  std::unique_ptr<C10dServer> NewStore();
  // Returns a callback that logs why a store client was disconnected after an error.
  std::function<void(const std::string& peer, const absl::Status& why)> ClientClosed();
  HttpReply Page(const HttpTarget& target);
  // HOST:PORT of the process that leads the job, if it is another one, and known.
  std::string LeaderOf(const std::string& job) const;
  // Handles a warden's report that the agent and all workers of its node have ended.
  HttpReply DeleteNode(const HttpTarget& target);
  void CheckAgentsGone();
  void EndStores();

  boost::asio::io_context& io_;
  const Coordinator::Log log_;
  const bool takes_any_job_;
  Coordinator coordinator_;
  std::unique_ptr<C10dServer> store_;
  std::unique_ptr<C10dServer> old_store_;  // the store that the last RenewStore replaced, or null
  GrpcPort grpc_;                          // also serves store_
  const HttpHandler pages_;
  std::unique_ptr<PortListener> listener_;
  boost::asio::steady_timer close_timer_;
  std::string leader_;
  std::optional<Witness> witness_;
  std::string close_reason_;
  absl::AnyInvocable<void()> closed_;  // empty unless Close is in progress
  Duration farewell_{};
  bool said_farewell_ = false;
  int open_stores_ = 0;  // number of stores that are not yet closed
  bool ending_stores_ = false;
};

}  // namespace ddprun
