// A c10d connection: reads requests, passes them to its owner and writes the replies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "net/poll_set.h"
#include "proto/c10d_parser.h"
#include "rendezvous/core/store_hub.h"

namespace ddprun {

struct C10dSessionOptions {
  c10d::ParserLimits parser = {};
  c10d::LegacyDialect legacy = c10d::LegacyDialect::kAuto;
  // How long to wait for more bytes after a legacy client has sent opcode 8 and a key. If no bytes arrive,
  // the request is DELETE_KEY; otherwise it is APPEND.
  Duration grace = milliseconds(50);
  // Reading stops while the unsent replies exceed this size. A single reply may be larger.
  size_t max_unsent_bytes = 1 << 20;
  // Limit for the total size of a connection's incomplete requests and unsent replies. A connection that
  // exceeds the limit is closed. Memory for waits does not count toward this limit; it is charged to the
  // store.
  size_t max_held_bytes = 160 << 20;
};

// Serves one connection. If one read returns several requests, their replies are sent in one write. The
// session stops reading requests while the peer does not read its replies. An incomplete request does not
// block other connections. An idle connection is never closed and uses at most kMaxIdleConnectionBytes. The
// address of the peer is determined only for error messages and is never resolved to a name.
//   Threads: only the thread of the PollSet's io_context.
//   Owns:    its socket.
class C10dSession final : private PollSet::Handler, private StoreHub::Waiter {
 public:
  // Of the functions of Owner, only OnTurnDone may destroy the session.
  class Owner {
   public:
    // Executes `request`, appends its reply to session.reply() and notifies the woken waiters. An error
    // closes the connection.
    virtual absl::Status OnRequest(C10dSession& session, const c10d::Request& request) = 0;
    // The session's wait has ended, and the reply to it is in session.reply(). The owner must flush the
    // session after the reply to the request that ended the wait.
    virtual void OnWoken(C10dSession& session) = 0;
    // The session has an ambiguous opcode 8. The owner must call EndGrace after C10dSessionOptions::grace.
    virtual void OnGrace(C10dSession& session) = 0;
    // The connection is about to be closed. `why` is OK if the peer disconnected, kUnavailable if the
    // connection broke, and otherwise the error that a request caused.
    virtual void OnClosed(C10dSession& session, const absl::Status& why) = 0;
    // Called last for each socket event, after all other calls.
    virtual void OnTurnDone() = 0;

   protected:
    ~Owner() = default;
  };

  // Takes ownership of `fd`, which must be nonblocking. `poll_set`, `options` and `owner` must outlive the
  // session.
  C10dSession(int fd, PollSet* poll_set, StoreHub* hub, const C10dSessionOptions& options, Owner* owner);
  C10dSession(const C10dSession&) = delete;
  C10dSession& operator=(const C10dSession&) = delete;
  // Closes the connection if it is open, but does not call OnClosed.
  ~C10dSession();

  ConnId id() const { return id_; }
  c10d::Dialect dialect() const { return parser_.dialect(); }
  bool open() const { return fd_ >= 0; }
  std::string peer() const;  // such as "10.0.0.7:34567", for error messages

  // Starts reading requests.
  //   Errors: kResourceExhausted: no memory or descriptor is available; OnClosed is not called.
  absl::Status Start();
  // The buffer for replies. Flush sends its contents.
  std::string* reply() { return &out_; }
  void Flush();
  // Resolves an ambiguous opcode 8 as DELETE_KEY, unless the rest of an APPEND has arrived.
  void EndGrace();
  // Stops executing requests, drops the pending wait, and sends pending replies and FIN. Then discards
  // input until the peer disconnects, because closing a socket with unread input would reset the
  // connection. Finally calls OnClosed.
  void Drain();

 private:
  void OnEvents(uint32_t events) override;
  void OnWoken() override;
  void OnStoreGone() override;

  void Read();
  void Process(absl::string_view data);
  void AfterOutput();
  absl::Status Account();
  void UpdateInterest();
  void Close(const absl::Status& why);
  void Release();
  size_t unsent() const { return out_.size() - sent_; }

  int fd_;  // -1 if closed
  PollSet* const poll_set_;
  StoreHub* hub_;  // null after Release, or after the hub was destroyed
  const ConnId id_;
  const C10dSessionOptions& options_;  // borrowed from the owner
  Owner* const owner_;
  bool polled_ = false;     // whether fd_ is registered with poll_set_
  uint32_t interest_ = 0;   // the events for which fd_ is registered
  uint64_t accounted_ = 0;  // bytes charged to the store
  bool held_ = false;       // whether requests wait in parser_ until the replies have been sent
  bool ended_ = false;      // whether the peer has sent FIN
  bool draining_ = false;   // whether Drain was called; no further requests are executed
  bool fin_sent_ = false;
  bool grace_asked_ = false;  // whether OnGrace was called
  std::string out_;           // replies; the bytes before sent_ have been sent
  size_t sent_ = 0;
  c10d::Parser parser_;
};

// Upper bound on the memory of a connection that has no request or reply in flight.
inline constexpr size_t kMaxIdleConnectionBytes = 8 << 10;

}  // namespace ddprun
