// A KvStore and the c10d connections that use it.
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
  KvLimits store = {};  // also of the connections and what they hold
  C10dSessionOptions session = {};
  uint64_t max_reply_bytes = kDefaultMaxReplyBytes;
  // Told when a connection is closed for what it asked (kInvalidArgument, kResourceExhausted), not when its
  // peer went, as workers do that end or are killed; and when new ones cannot be accepted. May be empty.
  std::function<void(const std::string& peer, const absl::Status& why)> on_error = nullptr;
};

//   Threads: that of `io`, on which everything runs.
//   Owns:    the store and the connections; destroying it closes them at once.
class C10dServer final : private C10dSession::Owner {
 public:
  explicit C10dServer(boost::asio::io_context& io, C10dServerOptions options = {});
  ~C10dServer();
  C10dServer(const C10dServer&) = delete;
  C10dServer& operator=(const C10dServer&) = delete;

  // Serves the connection `fd`, which does not block and is the server's now, until its peer hangs up. After
  // Close it is refused.
  void Serve(int fd);

  // Ends all connections as gently as their peers allow: what is to be answered is sent, then FIN, and what
  // they still send is discarded until they hang up or `linger` is over. Then calls `done`, once, not from
  // within. Old PyTorch clients abort when a connection of theirs is reset, so this comes when the workers
  // are gone, or else with time for them to go.
  void Close(Duration linger, absl::AnyInvocable<void()> done);

  // Where others, too, may use the store and wait in it.
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
  // Of this turn: woken, in order, and not told yet; closed, and perhaps among the woken.
  std::vector<C10dSession*> to_flush_;
  std::vector<std::unique_ptr<C10dSession>> closed_;
  bool in_turn_ = false;

  // Whose opcode 8 is not clear yet, and when it will be; in the order of time.
  std::deque<std::pair<TimePoint, ConnId>> graces_;
  boost::asio::steady_timer grace_;

  bool closing_ = false;
  boost::asio::steady_timer linger_;
  Alive alive_;
  absl::AnyInvocable<void()> done_;  // empty: Close was not called, or it is over
};

// The c10d store that the workers of one round meet at: a key space and a port of its own, so that no key of
// an earlier round is ever seen.

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
