// Executes requests of the c10d protocol on a KvStore and encodes the replies. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/c10d_wire.h"
#include "rendezvous/core/kv_store.h"

namespace ddprun {

// Executes `request` from `conn`. Appends the reply, if any, to `reply`, and the connections whose waits
// ended to `woken`. The caller sends the reply, then one kStopWaiting to each woken connection, which may be
// `conn` itself.
//   Errors: kInvalidArgument, kResourceExhausted: the protocol cannot express errors, so the caller closes
//           the connection. `reply` is unchanged.
absl::Status HandleC10dRequest(const c10d::Request& request, ConnId conn, c10d::Dialect dialect,
                               uint64_t max_reply_bytes, KvStore* store, std::string* reply,
                               KvStore::Woken* woken);

}  // namespace ddprun
