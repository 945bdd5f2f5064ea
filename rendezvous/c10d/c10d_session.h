// One c10d connection: reads requests, has them answered, writes the answers.
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
  // How long an opcode 8 of an old client may be the first half of APPEND before it is taken for DELETE_KEY.
  Duration grace = milliseconds(50);
  // With so much not yet taken by its reader, a connection is read no further. One answer may be larger.
  size_t max_unsent_bytes = 1 << 20;
  // What a connection may hold of half requests and unsent answers together; it is closed beyond. What it
  // waits for counts as the store's.
  size_t max_held_bytes = 160 << 20;
};

// All answers to what one read brought go out in one write. A slow reader stops being read, a half request is
// kept without anybody waiting for it, and nothing is ever closed for being silent. A connection at rest
// holds its object and little more (kMaxIdleConnectionBytes). The peer's address is asked for in an error
// message only, and its name never.
//   Threads: that of the PollSet's io_context.
//   Owns:    its socket.
class C10dSession final : private PollSet::Handler, private StoreHub::Waiter {
 public:
  // None of these may destroy the session before OnTurnDone.
  class Owner {
   public:
    // Has `request` answered in reply(), and who was woken told. An error closes the connection.
    virtual absl::Status OnRequest(C10dSession& session, const c10d::Request& request) = 0;
    // What it waited for came. The answer is in reply(); to be flushed when who woke it has its own.
    virtual void OnWoken(C10dSession& session) = 0;
    // EndGrace is due in C10dSessionOptions::grace.
    virtual void OnGrace(C10dSession& session) = 0;
    // The connection is closed. `why` is OK when the peer hung up, kUnavailable when the connection broke,
    // else what was wrong with its requests.
    virtual void OnClosed(C10dSession& session, const absl::Status& why) = 0;
    // The last call of a turn that an event of the socket began; the session may be destroyed in it.
    virtual void OnTurnDone() = 0;

   protected:
    ~Owner() = default;
  };

  // `fd`, which does not block, is the session's; all others outlive it.
  C10dSession(int fd, PollSet* poll_set, StoreHub* hub, const C10dSessionOptions& options, Owner* owner);
  C10dSession(const C10dSession&) = delete;
  C10dSession& operator=(const C10dSession&) = delete;
  // Without OnClosed when it is open.
  ~C10dSession();

  ConnId id() const { return id_; }
  c10d::Dialect dialect() const { return parser_.dialect(); }
  bool open() const { return fd_ >= 0; }
  std::string peer() const;  // "10.0.0.7:34567", for messages

  //   Errors: kResourceExhausted: no memory or descriptor for it; OnClosed is not called.
  absl::Status Start();
  // Where answers are put. Nothing is sent before Flush.
  std::string* reply() { return &out_; }
  void Flush();
  // No second half of an APPEND came: it was a DELETE_KEY.
  void EndGrace();
  // Refuses further requests, forgets what it waits for, sends what is to be sent and FIN, and discards what
  // comes until the peer hangs up: closing with input unread would reset the connection. Ends with OnClosed.
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
  StoreHub* hub_;  // null: left
  const ConnId id_;
  const C10dSessionOptions& options_;  // the owner's
  Owner* const owner_;
  bool polled_ = false;     // poll_set_ has us
  uint32_t interest_ = 0;   // what it looks for
  uint64_t accounted_ = 0;  // bytes that the store has reserved for us
  bool held_ = false;       // requests wait in parser_ until the answers are taken
  bool ended_ = false;      // the peer will send nothing more
  bool draining_ = false;   // we shall answer nothing more
  bool fin_sent_ = false;
  bool grace_asked_ = false;
  std::string out_;  // up to sent_ it is sent
  size_t sent_ = 0;
  c10d::Parser parser_;
};

// Memory of a connection that has no request and no answer under way: less than this.
inline constexpr size_t kMaxIdleConnectionBytes = 8 << 10;

}  // namespace ddprun
