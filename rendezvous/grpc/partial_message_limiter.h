// Limits the memory that gRPC uses for incomplete messages. The limiter estimates this memory from outside
// gRPC.
//
// gRPC buffers the received part of a message of any announced size, on any number of streams, and checks the
// size limit only when the message is complete. gRPC's ResourceQuota does not help, because it ends calls of
// other clients and reacts more slowly than the memory fills. The limiter therefore subtracts the size of the
// complete messages from the number of bytes that the kernel has received on a connection. The difference
// approximates the size of the incomplete messages.
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
  // Maximum size of the incomplete messages on one connection, in bytes. c10d TCP has the same limit.
  uint64_t one = 160 << 20;
  // Maximum size of the incomplete messages on all connections, in bytes.
  uint64_t all = uint64_t{1} << 30;
};

// Disconnects each connection that exceeds the limit `one`. If all connections together exceed the limit
// `all`, disconnects the connection with the largest size of incomplete messages. Checks the limits twice a
// second, and 20 times a second while much data arrives. A limit may be exceeded by the data that arrives
// between two checks.
//   Threads: all calls must be made on the thread of `io`, except CameWhole, which any thread may call.
//   Owns:    a duplicate of the descriptor of each connection, until the connection has ended.
class PartialMessageLimiter {
 public:
  // Called when the limiter disconnects a connection. `why` is kResourceExhausted. The function may be empty.
  using OnError = std::function<void(const std::string& peer, const absl::Status& why)>;

  PartialMessageLimiter(boost::asio::io_context& io, const PartialMessageLimits& limits, OnError on_error);
  ~PartialMessageLimiter();
  PartialMessageLimiter(const PartialMessageLimiter&) = delete;
  PartialMessageLimiter& operator=(const PartialMessageLimiter&) = delete;

  // Watches a connection. Call before passing it to gRPC.
  void Watch(int fd);
  // Reports that `bytes` of the data received from `peer` belong to complete messages. `peer` is gRPC's name
  // for the peer.
  void CameWhole(absl::string_view peer, uint64_t bytes);

 private:
  struct Connection {
    int fd = -1;
    uint64_t received = 0;  // bytes that the kernel had received at the last check
    uint64_t whole = 0;     // bytes of messages that were completed since the last check
    uint64_t half = 0;      // bytes of incomplete messages at the last check
  };

  void Await(Duration pause);
  bool Look();
  void HangUp(const std::string& peer, const Connection& connection, uint64_t limit, absl::string_view scope);

  const PartialMessageLimits limits_;
  const OnError on_error_;
  boost::asio::steady_timer timer_;
  Alive alive_;
  bool awaiting_ = false;
  absl::Mutex mutex_;
  // Keyed by the address and port of the peer, such as "10.0.0.7:34567".
  absl::flat_hash_map<std::string, Connection> connections_ ABSL_GUARDED_BY(mutex_);
};

// Returns the address in gRPC's name for a peer: "10.0.0.7" for "ipv4:10.0.0.7:41234", and "::1" for
// "ipv6:%5B::1%5D:41234".
std::string PeerAddress(absl::string_view peer);

}  // namespace ddprun
