// Executes requests of the c10d protocol on a KvStore and encodes the replies. Performs no I/O.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/c10d_wire.h"
#include "rendezvous/core/kv_store.h"

namespace ddprun {

// Executes `request` from `conn`. Appends the reply, if any, to `reply`. Appends to `woken` the connections
// whose waits have ended. The caller must first send the reply and then send one kStopWaiting to each
// connection in `woken`, which may include `conn` itself.
//   Errors: kInvalidArgument or kResourceExhausted. The protocol cannot express errors, so the caller must
//           close the connection. `reply` is unchanged.
absl::Status HandleC10dRequest(const c10d::Request& request, ConnId conn, c10d::Dialect dialect,
                               uint64_t max_reply_bytes, KvStore* store, std::string* reply,
                               KvStore::Woken* woken);

}  // namespace ddprun
