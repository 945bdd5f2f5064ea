// Limits the memory that gRPC uses for incomplete messages, measured from outside gRPC.
//
// gRPC buffers the received part of a message of any announced size, on any number of streams, and checks the
// size limit only when the message is complete. gRPC's ResourceQuota ends calls of other clients and reacts
// more slowly than the memory fills. The number of bytes that the kernel has received on a connection, minus
// the size of the complete messages, approximates the size of the incomplete ones.
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
  uint64_t one = 160 << 20;          // bytes of one connection; the same limit as for c10d TCP
  uint64_t all = uint64_t{1} << 30;  // bytes of all connections
};

// Disconnects each connection that exceeds the limit `one`. If all connections together exceed the limit
// `all`, disconnects the one that holds the most. Checks twice a second, and 20 times a second while much
// data arrives; a limit may be exceeded by the data of one interval.
//   Threads: the thread of `io`; CameWhole from any thread.
//   Owns:    a duplicate descriptor of each connection until it has ended.
class PartialMessageLimiter {
 public:
  // Called when a connection is disconnected (kResourceExhausted). May be empty.
  using OnError = std::function<void(const std::string& peer, const absl::Status& why)>;

  PartialMessageLimiter(boost::asio::io_context& io, const PartialMessageLimits& limits, OnError on_error);
  ~PartialMessageLimiter();
  PartialMessageLimiter(const PartialMessageLimiter&) = delete;
  PartialMessageLimiter& operator=(const PartialMessageLimiter&) = delete;

  // Watches a connection. Call before passing it to gRPC.
  void Watch(int fd);
  // `bytes` received from `peer`, as gRPC names it, belong to complete messages.
  void CameWhole(absl::string_view peer, uint64_t bytes);

 private:
  struct Connection {
    int fd = -1;
    uint64_t received = 0;  // by the kernel, at the last check
    uint64_t whole = 0;     // of complete messages since the last check
    uint64_t half = 0;      // of incomplete messages at the last check
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
  absl::flat_hash_map<std::string, Connection> connections_ ABSL_GUARDED_BY(mutex_);  // by "10.0.0.7:34567"
};

// The address in gRPC's name of a peer: "ipv4:10.0.0.7:41234" -> "10.0.0.7", "ipv6:%5B::1%5D:41234" -> "::1".
std::string PeerAddress(absl::string_view peer);

}  // namespace ddprun
