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
  // Time after which opcode 8 of an old client is taken as DELETE_KEY, unless the rest of an APPEND arrives.
  Duration grace = milliseconds(50);
  // Reading stops while the unsent replies exceed this size. A single reply may be larger.
  size_t max_unsent_bytes = 1 << 20;
  // Limit for the total size of a connection's incomplete requests and unsent replies. A connection that
  // exceeds the limit is closed. Waits are not included; they are charged to the store.
  size_t max_held_bytes = 160 << 20;
};

// All replies to the requests of one read are sent in one write. Reading stops while a peer does not read its
// replies. An incomplete request blocks no other connection. Idle connections are never closed and use less
// than kMaxIdleConnectionBytes each. The peer's address is determined only for error messages; its name is
// never resolved.
//   Threads: the thread of the PollSet's io_context.
//   Owns:    its socket.
class C10dSession final : private PollSet::Handler, private StoreHub::Waiter {
 public:
  // The session must not be destroyed in these calls, except in OnTurnDone.
  class Owner {
   public:
    // Executes `request`, appends its reply to reply() and notifies the woken waiters. An error closes the
    // connection.
    virtual absl::Status OnRequest(C10dSession& session, const c10d::Request& request) = 0;
    // The session's wait has ended. Its reply is in reply(); flush it after the reply to the request that
    // ended the wait.
    virtual void OnWoken(C10dSession& session) = 0;
    // The owner must call EndGrace after C10dSessionOptions::grace.
    virtual void OnGrace(C10dSession& session) = 0;
    // The connection is closed. `why` is OK if the peer disconnected, kUnavailable if the connection broke,
    // or the error caused by its requests.
    virtual void OnClosed(C10dSession& session, const absl::Status& why) = 0;
    // The last call for a socket event. The session may be destroyed in it.
    virtual void OnTurnDone() = 0;

   protected:
    ~Owner() = default;
  };

  // Takes ownership of `fd`, which must be nonblocking. The other arguments must outlive the session.
  C10dSession(int fd, PollSet* poll_set, StoreHub* hub, const C10dSessionOptions& options, Owner* owner);
  C10dSession(const C10dSession&) = delete;
  C10dSession& operator=(const C10dSession&) = delete;
  // Closes an open connection without OnClosed.
  ~C10dSession();

  ConnId id() const { return id_; }
  c10d::Dialect dialect() const { return parser_.dialect(); }
  bool open() const { return fd_ >= 0; }
  std::string peer() const;  // "10.0.0.7:34567", for messages

  //   Errors: kResourceExhausted: no memory or descriptor; OnClosed is not called.
  absl::Status Start();
  // The buffer of unsent replies. Flush sends it.
  std::string* reply() { return &out_; }
  void Flush();
  // Resolves an ambiguous opcode 8 as DELETE_KEY, unless the rest of an APPEND has arrived.
  void EndGrace();
  // Stops executing requests, drops the wait, sends pending replies and FIN, and discards input until the
  // peer disconnects: closing a socket with unread input would reset the connection. Ends with OnClosed.
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

  int fd_;  // -1: closed
  PollSet* const poll_set_;
  StoreHub* hub_;  // null after leaving it
  const ConnId id_;
  const C10dSessionOptions& options_;  // borrowed from the owner
  Owner* const owner_;
  bool polled_ = false;     // registered with poll_set_
  uint32_t interest_ = 0;   // registered events
  uint64_t accounted_ = 0;  // bytes charged to the store
  bool held_ = false;       // requests wait in parser_ until the replies are sent
  bool ended_ = false;      // the peer has sent FIN
  bool draining_ = false;   // no further requests are executed
  bool fin_sent_ = false;
  bool grace_asked_ = false;
  std::string out_;  // replies; the bytes before sent_ have been sent
  size_t sent_ = 0;
  c10d::Parser parser_;
};

// Upper bound of the memory of a connection that has no request or reply in flight.
inline constexpr size_t kMaxIdleConnectionBytes = 8 << 10;

}  // namespace ddprun
