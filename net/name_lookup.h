// Names to addresses, with a deadline. getaddrinfo has none: a name server that does not answer holds it up
// for as long as resolv.conf says, half a minute as a rule.
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

// One lookup of TCP addresses. An address in digits is answered at once, a name is looked up in a thread of
// its own, which may outlive this object.
class NameLookup {
 public:
  NameLookup(const std::string& host, int port);

  // Readable once there is a result. Valid as long as this object; -1 if there is no descriptor left: then
  // there is a result at once.
  int fd() const;

  //   Errors: kUnavailable: the name does not resolve, with the cause; no thread or descriptor is left.
  //   REQUIRES: fd() is readable, or -1.
  absl::StatusOr<std::vector<SocketAddress>> Result() const;

 private:
  void AskInAThread(const std::string& host, int port);

  struct State;
  std::shared_ptr<State> state_;
};

// The same, blocking.
//   Errors: kUnavailable: the name does not resolve; kDeadlineExceeded: there was no answer by then.
absl::StatusOr<std::vector<SocketAddress>> ResolveName(const std::string& host, int port, TimePoint deadline);

}  // namespace ddprun
