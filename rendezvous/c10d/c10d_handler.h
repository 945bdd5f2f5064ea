// What each request of the c10d protocol does to a KvStore, and the bytes of its answer. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "proto/c10d_wire.h"
#include "rendezvous/core/kv_store.h"

namespace ddprun {

// Carries out `request` of `conn`. Appends its reply, if it has one, to `reply`, and to `woken` who is to be
// sent one kStopWaiting each, after that; `conn` may be among them.
//   Errors: kInvalidArgument, kResourceExhausted: the protocol has no word for it, so the connection is to be
//           closed. `reply` is as it was.
absl::Status HandleC10dRequest(const c10d::Request& request, ConnId conn, c10d::Dialect dialect,
                               uint64_t max_reply_bytes, KvStore* store, std::string* reply,
                               KvStore::Woken* woken);

}  // namespace ddprun
