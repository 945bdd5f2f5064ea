// One c10d connection: reads requests, has them answered, writes the answers.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/time.h"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/steady_timer.hpp"
#include "proto/c10d_parser.h"
#include "rendezvous/core/kv_store.h"

namespace ddprun {

struct C10dSessionOptions {
  c10d::ParserLimits parser = {};
  c10d::LegacyDialect legacy = c10d::LegacyDialect::kAuto;
  // How long an opcode 8 of an old client may be the first half of APPEND before it is taken for DELETE_KEY.
  Duration grace = milliseconds(50);
  // With so much not yet taken by its reader, a connection is read no further. One answer may be larger.
  size_t max_unsent_bytes = 1 << 20;
};

// All answers to what one read brought go out in one write. A slow reader stops being read, a half request is
// kept without anybody waiting for it, and nothing is ever closed for being silent.
//   Threads: that of the io_context.
//   Owns:    its socket. A pending operation shares the session, so that it outlives its owner's interest in
//   it.
class C10dSession : public std::enable_shared_from_this<C10dSession> {
 public:
  class Owner {
   public:
    // Has `request` answered by Reply, and others woken by Reply and Flush. An error closes the connection.
    virtual absl::Status OnRequest(C10dSession& session, const c10d::Request& request) = 0;
    // After all requests of one read, when the answers to this session have been sent.
    virtual void OnBatchDone() = 0;
    // The connection is gone; the session is not used any more. `why` is OK when the peer hung up,
    // kUnavailable when the connection broke, else what was wrong with its requests.
    virtual void OnClosed(C10dSession& session, const absl::Status& why) = 0;

   protected:
    ~Owner() = default;
  };

  C10dSession(boost::asio::ip::tcp::socket socket, ConnId id, const C10dSessionOptions& options,
              Owner* owner);

  ConnId id() const { return id_; }
  c10d::Dialect dialect() const { return parser_.dialect(); }
  std::string peer() const;  // "10.0.0.7:34567", for messages

  void Start();
  // Where answers are put. Nothing is sent before Flush.
  std::string* reply() { return &reply_; }
  void Flush();
  // Refuses further requests, sends what is to be sent and FIN, and discards what comes until the peer hangs
  // up: closing with input unread would reset the connection. Ends with OnClosed.
  void Drain();
  // Closes now, without OnClosed. No call to the owner comes after it.
  void Abandon();

 private:
  void Read();
  void OnRead(size_t size);
  void TakeWaitingInput();
  void Process(absl::string_view data);
  void Resume();
  void StartGrace();
  void Write();
  void OnWritten();
  void Close(const absl::Status& why);
  size_t unsent() const { return reply_.size() + sending_.size() - sent_; }

  boost::asio::ip::tcp::socket socket_;
  const ConnId id_;
  const C10dSessionOptions& options_;  // the owner's
  Owner* owner_;                       // null: closed
  c10d::Parser parser_;
  absl::Status failed_;    // of the request last answered
  bool reading_ = false;   // an operation is pending
  bool writing_ = false;   // so, too
  bool held_ = false;      // requests wait in parser_ until the answers are taken
  bool ended_ = false;     // the peer will send nothing more
  bool draining_ = false;  // we shall answer nothing more
  std::string reply_;
  std::string sending_;  // up to sent_ it is sent; used only while writing_
  size_t sent_ = 0;
  std::optional<boost::asio::steady_timer> grace_;
  std::array<char, 512> input_;  // larger input is taken through a buffer that all share
};

}  // namespace ddprun
