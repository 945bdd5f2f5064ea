// TCP sockets whose operations another thread can cancel.
#pragma once

#include <netinet/in.h>
#include <poll.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "os/descriptor.h"

namespace ddprun::stand_in {

// Ends waits for good.
//   Threads: safe.
class Cancel {
 public:
  Cancel();
  void Fire();
  bool fired() const { return fired_.load(); }
  // Readable once Fire() was called.
  int fd() const { return event_.get(); }
  // For at most `ms`; for ever if that is negative.
  void Wait(int64_t ms = -1) const;

 private:
  UniqueFd event_;
  std::atomic<bool> fired_ = false;
};

// How an operation ended.
enum class Outcome { kDone, kDifferent /* the ranks' calls differ */, kPeerDied, kCancelled };

// An address of IPv4 or IPv6, as bytes that can be sent.
union Address {
  sockaddr base;
  sockaddr_in v4;
  sockaddr_in6 v6;

  socklen_t size() const { return base.sa_family == AF_INET ? sizeof v4 : sizeof v6; }
};

// The address of the first interface that NCCL_SOCKET_IFNAME allows, as NCCL interprets it: a list of prefixes; "=" before the
// list: of names; "^": all others. Without the variable, that of the first interface other than the loopback interface, or of
// that one. Aborts the process if there is none.
Address LocalAddress();

// Listens at `address`, and sets its port.
UniqueFd Listen(Address& address);
// Empty: cancelled, or an error. Sockets do not block.
UniqueFd Accept(int listener, const Cancel& cancel);
UniqueFd ConnectTo(const Address& address, const Cancel& cancel);

// All bytes.
Outcome ReadAll(int fd, void* to, size_t bytes, const Cancel& cancel);
Outcome WriteAll(int fd, const void* from, size_t bytes, const Cancel& cancel);

template <typename T>
Outcome Read(const UniqueFd& fd, T& to, const Cancel& cancel) {
  return ReadAll(fd.get(), &to, sizeof to, cancel);
}
template <typename T>
Outcome Write(const UniqueFd& fd, const T& from, const Cancel& cancel) {
  return WriteAll(fd.get(), &from, sizeof from, cancel);
}

}  // namespace ddprun::stand_in
