// Name lookup with a deadline. getaddrinfo has no deadline: if the name server does not answer, getaddrinfo
// blocks for the time that resolv.conf sets, typically half a minute.
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

// One lookup of TCP addresses. A numeric address is resolved immediately; a name is looked up on a separate
// thread, which may outlive this object.
class NameLookup {
 public:
  NameLookup(const std::string& host, int port);

  // Readable once the result is available; owned by this object. -1: no descriptor was available, and the
  // result is available immediately.
  int fd() const;

  //   Errors: kUnavailable: the name does not resolve, or no thread or descriptor is available; the message
  //           has the cause.
  //   REQUIRES: fd() is readable, or -1.
  absl::StatusOr<std::vector<SocketAddress>> Result() const;

 private:
  void AskInAThread(const std::string& host, int port);

  struct State;
  std::shared_ptr<State> state_;
};

// Like NameLookup, but blocks.
//   Errors: kUnavailable: the name does not resolve; kDeadlineExceeded: no answer by `deadline`.
absl::StatusOr<std::vector<SocketAddress>> ResolveName(const std::string& host, int port, TimePoint deadline);

}  // namespace ddprun
