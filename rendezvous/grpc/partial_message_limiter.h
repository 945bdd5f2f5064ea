// What gRPC holds of messages that are not whole yet: counted from outside, and limited.
//
// gRPC keeps what has come of a message, however much was announced, on any number of streams, and compares
// it with the largest that is allowed once it is whole. Its ResourceQuota ends calls of others for it, and
// more slowly than the memory fills. What the kernel has received on a connection, less the messages that
// became whole, is about what there is of others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "base/alive.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"

namespace ddprun {

struct PartialMessageLimits {
  uint64_t one = 160 << 20;          // of a connection, as over c10d TCP
  uint64_t all = uint64_t{1} << 30;  // together
};

// Hangs up on a connection beyond its limit and, beyond that of all, on the one that holds most. It looks
// from time to time, twenty times a second while much comes: so much later, and so much more, may that be.
//   Threads: that of `io`; CameWhole from any.
//   Owns:    a second descriptor of each connection, until it has ended.
class PartialMessageLimiter {
 public:
  // Told when a connection is hung up on (kResourceExhausted). May be empty.
  using OnError = std::function<void(const std::string& peer, const absl::Status& why)>;

  PartialMessageLimiter(boost::asio::io_context& io, const PartialMessageLimits& limits, OnError on_error);
  ~PartialMessageLimiter();
  PartialMessageLimiter(const PartialMessageLimiter&) = delete;
  PartialMessageLimiter& operator=(const PartialMessageLimiter&) = delete;

  // Watches a connection, before gRPC has it.
  void Watch(int fd);
  // `bytes` of what came from `peer`, as gRPC names it, are no part of a half message.
  void CameWhole(absl::string_view peer, uint64_t bytes);

 private:
  struct Connection {
    int fd = -1;
    uint64_t received = 0;  // by the kernel, when we looked last
    uint64_t whole = 0;     // since then
    uint64_t half = 0;      // then
  };

  void Await(Duration pause);
  bool Look();
  void HangUp(const std::string& peer, const Connection& connection, uint64_t limit, absl::string_view whose);

  const PartialMessageLimits limits_;
  const OnError on_error_;
  boost::asio::steady_timer timer_;
  Alive alive_;
  bool awaiting_ = false;
  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, Connection> connections_ ABSL_GUARDED_BY(mutex_);  // by "10.0.0.7:34567"
};

// "ipv4:10.0.0.7:41234" or "ipv6:%5B::1%5D:41234", as gRPC names a peer -> "10.0.0.7", "::1".
std::string PeerAddress(absl::string_view peer);

}  // namespace ddprun
