// A server that gives c10d clients access to a KvStore.
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
  KvLimits store = {};  // connections and their buffers count toward max_bytes
  C10dSessionOptions session = {};
  uint64_t max_reply_bytes = kDefaultMaxReplyBytes;
  // Called when a connection is closed because of its requests (kInvalidArgument, kResourceExhausted), or
  // when connections cannot be accepted. Not called when a peer disconnects, because workers disconnect
  // whenever they exit or are killed. May be empty.
  std::function<void(const std::string& peer, const absl::Status& why)> on_error = nullptr;
};

// A server for connections that another object accepts.
//   Threads: all calls and callbacks on the thread of `io`.
//   Owns:    the store and the connections. The destructor closes the connections immediately.
class C10dServer final : private C10dSession::Owner {
 public:
  explicit C10dServer(boost::asio::io_context& io, C10dServerOptions options = {});
  ~C10dServer();
  C10dServer(const C10dServer&) = delete;
  C10dServer& operator=(const C10dServer&) = delete;

  // Takes ownership of `fd`, a nonblocking connection, and serves it until the peer disconnects. After Close,
  // closes `fd` immediately.
  void Serve(int fd);

  // Closes all connections gracefully: sends pending replies and FIN, then discards input until all peers
  // have disconnected or `linger` has passed. Then invokes `done` once, never from within this call.
  //
  // Old PyTorch clients abort when a connection is reset. Therefore, call Close after the workers have
  // exited, or with a `linger` that gives them enough time to exit.
  void Close(Duration linger, absl::AnyInvocable<void()> done);

  // The hub through which other objects use the store or wait for its keys.
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
  // A turn is the handling of one socket event. to_flush_ has the sessions to flush at the end of the current
  // turn, in the order in which they were woken. closed_ has the sessions that were closed in this turn. A
  // session may be in both vectors.
  std::vector<C10dSession*> to_flush_;
  std::vector<std::unique_ptr<C10dSession>> closed_;
  bool in_turn_ = false;

  // Connections with an ambiguous opcode 8, each with the time at which its grace period ends. The earliest
  // time comes first.
  std::deque<std::pair<TimePoint, ConnId>> graces_;
  boost::asio::steady_timer grace_;

  bool closing_ = false;
  boost::asio::steady_timer linger_;
  Alive alive_;
  absl::AnyInvocable<void()> done_;  // empty unless Close is in progress
};

// The c10d store for the workers of one round. Each round has a store with its own keys and its own port, so
// that keys of earlier rounds are not visible.
//   Threads: only the thread of `io`.
//   Owns:    the port, the store and its connections. The destructor closes the port and the connections
//            immediately.
class WorkerStore {
 public:
  // The port is open when this function returns, so the caller can publish port(). The arguments and errors
  // are those of PortListener::Open.
  static absl::StatusOr<std::unique_ptr<WorkerStore>> Open(boost::asio::io_context& io,
                                                           const std::string& address, int port = 0,
                                                           C10dServerOptions options = {});
  WorkerStore(const WorkerStore&) = delete;
  WorkerStore& operator=(const WorkerStore&) = delete;

  int port() const { return listener_->port(); }
  const C10dServer& server() const { return server_; }

  // Closes the port, then calls C10dServer::Close. Must be called at most once.
  void Close(Duration linger, absl::AnyInvocable<void()> done);

 private:
  WorkerStore(boost::asio::io_context& io, C10dServerOptions options);

  C10dServer server_;
  std::unique_ptr<PortListener> listener_;
};

}  // namespace ddprun
