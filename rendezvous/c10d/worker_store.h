// The c10d store that the workers of one round meet at: a key space and a port of its own, so that no key of
// an earlier round is ever seen.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "net/port_listener.h"
#include "rendezvous/c10d/c10d_server.h"

namespace ddprun {

//   Threads: that of `io`.
//   Owns:    the port, the store and its connections; destroying it ends all at once.
class WorkerStore {
 public:
  // `address` and `port` as for PortListener::Open: bound first, published afterwards. Its errors, too.
  static absl::StatusOr<std::unique_ptr<WorkerStore>> Open(boost::asio::io_context& io,
                                                           const std::string& address, int port = 0,
                                                           C10dServerOptions options = {});
  WorkerStore(const WorkerStore&) = delete;
  WorkerStore& operator=(const WorkerStore&) = delete;

  int port() const { return listener_->port(); }
  const C10dServer& server() const { return server_; }

  // Frees the port, ends the connections as C10dServer::Close does, then calls `done`. Once.
  void Close(Duration linger, absl::AnyInvocable<void()> done);

 private:
  WorkerStore(boost::asio::io_context& io, C10dServerOptions options);

  C10dServer server_;
  std::unique_ptr<PortListener> listener_;
};

}  // namespace ddprun
