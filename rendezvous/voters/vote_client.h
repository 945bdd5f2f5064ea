// Sends votes to other processes.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "rendezvous/voters/vote.h"

namespace ddprun {

//   Threads: that of the register's timer.
class VoteClient {
 public:
  virtual ~VoteClient() = default;
  // Calls `done` once, not within this call, at the latest soon after `limit`; not after this object is destroyed.
  //   address: HOST:PORT.
  //   Errors:  kNotFound: the voter has exited: no process, or another one, listens at the address.
  virtual void Send(const std::string& address, const VoteRequest& request, Duration limit,
                    std::function<void(absl::StatusOr<VoteReply>)> done) = 0;
};

}  // namespace ddprun
