// Name lookup that either does not block or blocks at most until a deadline. getaddrinfo offers neither:
// if the name server does not answer, getaddrinfo blocks for as long as resolv.conf specifies, typically
// 30 s.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace ddprun {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

// A lookup of the TCP addresses of one host. The constructor resolves a numeric address immediately. A name
// is looked up on a separate thread, which may outlive this object.
class NameLookup {
 public:
  NameLookup(const std::string& host, int port);

  // Returns a descriptor that becomes readable when the result is available. This object owns the
  // descriptor. Returns -1 if no descriptor could be created; the result is then available immediately.
  int fd() const;

  // Returns the addresses of the host.
  //   Errors: kUnavailable: the name does not resolve, or no thread or descriptor is available; the message
  //           contains the cause.
  //   REQUIRES: fd() is readable or -1.
  absl::StatusOr<std::vector<SocketAddress>> Result() const;

 private:
  void AskInAThread(const std::string& host, int port);

  struct State;
  std::shared_ptr<State> state_;
};

// Like NameLookup, but blocks until the result is available.
//   Errors: those of NameLookup::Result; kDeadlineExceeded: the result is not available by `deadline`.
absl::StatusOr<std::vector<SocketAddress>> ResolveName(const std::string& host, int port, TimePoint deadline);

}  // namespace ddprun
