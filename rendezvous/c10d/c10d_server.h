// A KvStore served over c10d connections.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/alive.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "net/poll_set.h"
#include "net/port_listener.h"
#include "rendezvous/c10d/c10d_handler.h"
#include "rendezvous/c10d/c10d_session.h"
#include "rendezvous/core/kv_store.h"
#include "rendezvous/core/store_hub.h"

namespace ddprun {

struct C10dServerOptions {
  KvLimits store = {};  // the limit includes connections and their buffers
  C10dSessionOptions session = {};
  uint64_t max_reply_bytes = kDefaultMaxReplyBytes;
  // Called when a connection is closed because of its requests (kInvalidArgument, kResourceExhausted), or
  // when connections cannot be accepted. Not called when a peer disconnects, as workers do when they exit or
  // are killed. May be empty.
  std::function<void(const std::string& peer, const absl::Status& why)> on_error = nullptr;
};

// A server for connections that another object accepts.
//   Threads: all calls and callbacks on the thread of `io`.
//   Owns:    the store and the connections. The destructor closes them at once.
class C10dServer final : private C10dSession::Owner {
 public:
  explicit C10dServer(boost::asio::io_context& io, C10dServerOptions options = {});
  ~C10dServer();
  C10dServer(const C10dServer&) = delete;
  C10dServer& operator=(const C10dServer&) = delete;

  // Takes ownership of `fd`, a nonblocking connection, and serves it until its peer disconnects. After Close
  // the connection is closed at once.
  void Serve(int fd);

  // Closes all connections gracefully: sends pending replies and FIN, then discards input until the peers
  // disconnect or `linger` has passed. Then invokes `done` once, never from within this call. Old PyTorch
  // clients abort when a connection is reset: call this when the workers have exited, or with a `linger` long
  // enough for them to exit.
  void Close(Duration linger, absl::AnyInvocable<void()> done);

  // Lets other objects use the store and wait for its keys.
  StoreHub& hub() { return hub_; }
  const KvStore& store() const { return hub_.store(); }
  int num_connections() const { return static_cast<int>(sessions_.size()); }

 private:
  absl::Status OnRequest(C10dSession& session, const c10d::Request& request) override;
  void OnWoken(C10dSession& session) override;
  void OnGrace(C10dSession& session) override;
  void OnClosed(C10dSession& session, const absl::Status& why) override;
  void OnTurnDone() override;
  void AwaitGrace();
  void CheckClosed();

  boost::asio::io_context& io_;
  PollSet& poll_set_;
  const C10dServerOptions options_;
  StoreHub hub_;
  absl::flat_hash_map<ConnId, std::unique_ptr<C10dSession>> sessions_;
  // Sessions of the current turn: those to flush, in the order of waking, and those that have closed. A
  // session may be in both.
  std::vector<C10dSession*> to_flush_;
  std::vector<std::unique_ptr<C10dSession>> closed_;
  bool in_turn_ = false;

  // Connections with an ambiguous opcode 8 and the times at which it is resolved, earliest first.
  std::deque<std::pair<TimePoint, ConnId>> graces_;
  boost::asio::steady_timer grace_;

  bool closing_ = false;
  boost::asio::steady_timer linger_;
  Alive alive_;
  absl::AnyInvocable<void()> done_;  // empty: Close was not called, or has completed
};

// The c10d store of the workers of one round. It has its own keys and its own port, so that no key of an
// earlier round is visible.
//   Threads: the thread of `io`.
//   Owns:    the port, the store and its connections. The destructor closes them at once.
class WorkerStore {
 public:
  // Opens the port before it returns, so that port() can be published. `address`, `port` and errors as for
  // PortListener::Open.
  static absl::StatusOr<std::unique_ptr<WorkerStore>> Open(boost::asio::io_context& io,
                                                           const std::string& address, int port = 0,
                                                           C10dServerOptions options = {});
  WorkerStore(const WorkerStore&) = delete;
  WorkerStore& operator=(const WorkerStore&) = delete;

  int port() const { return listener_->port(); }
  const C10dServer& server() const { return server_; }

  // Closes the port, then the connections as C10dServer::Close does, then invokes `done`. Call at most once.
  void Close(Duration linger, absl::AnyInvocable<void()> done);

 private:
  WorkerStore(boost::asio::io_context& io, C10dServerOptions options);

  C10dServer server_;
  std::unique_ptr<PortListener> listener_;
};

}  // namespace ddprun
